"""`seqloom train RECIPE`: train it, go on with it, or say that it is finished; several runs with --seeds or sweeps."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.cli.gain import measured_gain, say_gain
from seqloom.cli.ranking import ranks
from seqloom.cli.reporting import NAME, written
from seqloom.errors import INTERRUPTED, PREEMPTED, SeqloomError
from seqloom.ranks.launch import launched

if TYPE_CHECKING:
    from seqloom.api.many import Many
    from seqloom.api.train import Run
    from seqloom.training.phases import Phases
    from seqloom.training.signals import Signals

STOPPED = {"preempted": PREEMPTED, "interrupted": INTERRUPTED}
DATA_SUFFIXES = (".tsv", ".jsonl", ".csv", ".txt", ".gz")


def command(
    recipe: Path | None = typer.Argument(None, metavar="[RECIPE|RUN]", help="A recipe, or a run folder to go on with."),
    run: Path | None = typer.Option(None, "--run", "-r", help="The run folder; runs/RECIPE by default."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Change a key of the recipe; KEY=A,B,C trains one run for each value."
    ),
    seeds: str | None = typer.Option(None, "--seeds", metavar="1-5", help="One run per seed, and their mean."),
    start: Path | None = typer.Option(None, "--from", metavar="RUN", help="Begin with this run's weights (fine-tune)."),
    gain: str | None = typer.Option(
        None, "--gain", metavar="1,10,100", help="With --from: from scratch as well, at these percentages of the data."
    ),
    tokens_of: Path | None = typer.Option(
        None, "--tokens-of", metavar="RUN", help="Of a language model: cut its text as this run cuts its targets."
    ),
    replace: bool = typer.Option(False, "--replace", help="Begin anew: drop what the run folder holds."),
    allow_data_change: bool = typer.Option(False, "--allow-data-change", help="Go on although the data changed."),
    grace: float = typer.Option(
        30.0, "--grace", min=0.1, max=86_400, help="Seconds to finish and save in after SIGTERM."
    ),
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    profile: bool = typer.Option(False, "--profile", help="Say at the end where the time went."),
    no_report: bool = typer.Option(False, "--no-report", help="Write no report.html in the end."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No talk and no progress."),
    as_json: bool = typer.Option(False, "--json", help="Report the result as JSON on stdout."),
) -> None:
    """Train a recipe; the same command goes on where it stopped."""
    path, run = _what_to_train(recipe, run, start)
    launch = launched()
    if launch is None:
        _peek(path)
    else:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else a lost process costs a page, besides our one line
    if launch is not None and (seeds is not None or gain is not None):
        raise _one_run("--gain" if gain else "--seeds")
    leads = launch is None or launch.leads
    quiet = quiet or not leads
    assignments = [*settings]
    assignments += [f"runtime.device={device}"] if device is not None else []
    assignments += [f"runtime.threads={threads}"] if threads is not None else []

    from seqloom.training.signals import Signals

    with ExitStack() as stack:
        stop = stack.enter_context(Signals(grace))  # before the imports, which take their time
        stack.enter_context(_last_words(stop, quiet))

        from seqloom.api.many import is_sweep, parse_seeds, train_many
        from seqloom.api.train import Wishes, train
        from seqloom.training.console import Console
        from seqloom.training.phases import Phases

        if profile and leads:
            stack.callback(_say_phases, stack.enter_context(Phases()))
        numbers = parse_seeds(seeds) if seeds is not None else []

        def wishes(label: str) -> Wishes:
            """A fresh console for each run, stopped whatever happens."""
            stop.begin()
            observers = () if quiet else (stack.enter_context(Console()),)
            tell = (lambda line: None) if quiet else say.talk
            return Wishes(observers, stop, tell, allow_data_change, start, replace, tokens_of=tokens_of)

        if gain is not None:
            folder = run if run is not None else Path("runs") / f"{path.stem}-gain"
            found = measured_gain(path, folder, start, gain, numbers or [1], wishes, assignments)
            with _read_or_not():
                say_gain(found, as_json)
            if found.reason in STOPPED:
                say.talk(f"saved; the same command{' without --replace' if replace else ''} goes on")
                raise typer.Exit(STOPPED[found.reason])
            say.talk(f"report: {say.shown(folder / NAME)}")
        elif numbers or any(map(is_sweep, assignments)):
            if launch is not None:
                raise _one_run("--set")
            if path.is_dir():
                raise SeqloomError("E_USAGE", "several runs begin from a recipe, not from a run", where=str(path))
            _say_many(train_many(path, run, _full_keys(path, assignments), numbers, wishes), as_json, quiet, replace)
        else:
            trained = train(path, run, assignments, wishes(""))
            if leads:
                if not no_report:
                    _report(trained, stop, quiet)
                _say_one(trained, as_json, quiet)
            elif trained.reason in STOPPED:
                raise typer.Exit(STOPPED[trained.reason])


def _one_run(where: str) -> SeqloomError:
    what = "several processes train one run, not several"
    return SeqloomError("E_USAGE", what, where=where, fix="train them one after the other")


def _say_phases(phases: Phases) -> None:
    """Where the time went, the imports before it left out."""
    for name, share in phases.shares().items():
        say.talk(f"{say.percent(share):>8}  {phases.seconds[name]:9.2f} s  {name}")


@contextmanager
def _last_words(stop: Signals, quiet: bool) -> Iterator[None]:
    """A command that was asked to stop ends in peace: a word if there was nothing to save, and no traceback."""
    try:
        yield
    except BaseException:
        if stop.reason is not None:
            stop.leave()
            if stop.early and not quiet:
                say.talk("stopped before the first step: there is nothing to save; the same command goes on")
        raise


def _what_to_train(recipe: Path | None, run: Path | None, start: Path | None) -> tuple[Path, Path | None]:
    """The recipe or run to train. `--from RUN` alone trains that run's own recipe, beside it."""
    if recipe is not None:
        if recipe.suffix in DATA_SUFFIXES:
            fix = f"seqloom init {shlex.quote(str(recipe))}"
            raise SeqloomError("E_USAGE", "this looks like data, not like a recipe", where=str(recipe), fix=fix)
        return recipe, run
    if start is None:
        raise SeqloomError(
            "E_USAGE", "no recipe given", fix="seqloom train recipe.yaml; 'seqloom init DATA' writes one"
        )
    if run is None:
        raise SeqloomError("E_USAGE", "--from without a recipe needs a folder for the new run", fix="add --run DIR")
    for name in ("recipe.yaml", "bundle/recipe.yaml"):  # a run knows where its data lies, a bundle only the names
        if (start / name).is_file():
            return start / name, run
    raise SeqloomError("E_FILE", "no run to begin from", where=str(start), fix="give the folder of a trained run")


def _peek(path: Path) -> None:
    """Read the recipe under its limits before anything heavy is imported: a hostile one costs nothing."""
    from seqloom.config import read_yaml

    file = path / "recipe.yaml" if path.is_dir() else path
    if file.is_file() or not file.exists():  # a pipe is read only once, later
        if path.is_dir() and not file.exists():
            fix = "give a recipe, or the folder of a run"
            raise SeqloomError("E_FILE", "no recipe.yaml in this folder", where=str(path), fix=fix)
        read_yaml(file)


def _full_keys(path: Path, assignments: list[str]) -> list[str]:
    from seqloom.api.assignments import full_keys
    from seqloom.config import read_yaml

    return full_keys(read_yaml(path), assignments, str(path))


# --- the end -----------------------------------------------------------------------------------------------------


def _report(run: Run, stop: Signals, quiet: bool) -> None:
    """The report of a run that ended, unless it has one; a signal ends the report at once, and nothing else."""
    path, ended = run.folder / NAME, run.folder / "finished.json"
    if run.reason is None or run.reason in STOPPED or stop.reason is not None or not ended.is_file():
        return
    if path.exists() and path.stat().st_mtime >= ended.stat().st_mtime:
        return
    from seqloom.api.report import write_report
    from seqloom.recipe import load_recipe

    if not load_recipe(run.folder / "recipe.yaml").model.answers:
        return  # texts are scored or ranked, and there are no answers to be looked at
    stop.begin()
    written(path, lambda: write_report(run.folder, part="dev"), quiet)


def _say_one(run: Run, as_json: bool, quiet: bool) -> None:
    """The run folder on stdout, what to do next on stderr, and the exit code."""
    reason = run.reason or "interrupted"
    folder = shlex.quote(say.shown(run.folder.absolute()))
    values = _validation(run.bundle) if reason not in STOPPED else {}
    finished = reason not in STOPPED
    with _read_or_not():
        if as_json:
            say.as_json({"run": str(run.folder), "reason": reason, "finished": finished, "validation": values})
        else:
            say.data(str(run.folder))
    if not finished:
        if not quiet:
            say.talk("saved; to go on:\n  " + say.to_type(f"seqloom train {folder}"))
        raise typer.Exit(STOPPED[reason])
    if not quiet:
        say.talk("validation: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
        say.talk("next:")
        asks = f"predict {folder} " + ("FILE" if _reads_files(run) else '--text "..."')
        first = [f"index {folder}", f"{asks} --top 5"] if ranks(run.folder) else [asks]
        for line in (*first, f"evaluate {folder}", f"info {folder}"):
            say.talk("  " + say.to_type(f"seqloom {line}"))


def _reads_files(run: Run) -> bool:
    from seqloom.recipe import load_recipe

    return load_recipe(run.folder / "recipe.yaml").source.in_files


def _validation(bundle: Path) -> dict[str, float]:
    from seqloom.bundle import open_bundle

    found = open_bundle(bundle).about.get("validation")
    return {str(name): float(value) for name, value in found.items()} if isinstance(found, dict) else {}


@contextmanager
def _read_or_not() -> Iterator[None]:
    """What is trained is trained: that nobody reads stdout any more changes neither the talk nor the exit code."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # a closed pipe, a lost terminal; not a full disk
            raise
        say.unheard(1)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):  # which rich makes an exit
            raise


def _say_many(many: Many, as_json: bool, quiet: bool, replaced: bool) -> None:
    with _read_or_not():
        if as_json:
            say.as_json(many.as_dict())
        else:
            _tabulate(many)
    if not quiet:
        for command_line in (family.ensemble for family in many.families if family.ensemble):
            say.talk(f"all seeds as one model:\n  {command_line}")
    if many.reason in STOPPED:
        if not quiet:
            say.talk(f"saved; the same command{' without --replace' if replaced else ''} goes on")
        raise typer.Exit(STOPPED[many.reason])


def _tabulate(many: Many) -> None:
    names = list(dict.fromkeys(name for outcome in many.outcomes for name in outcome.values))
    rows: list[list[object]] = []
    for outcome in many.outcomes:
        values = [f"{outcome.values[name]:.4g}" if name in outcome.values else "-" for name in names]
        rows.append([outcome.label, outcome.reason, *values])
    for family in many.families:
        if len(family.members) > 1:
            rows.append([family.name or "mean", "", *(str(family.values.get(name, "-")) for name in names)])
    best = [f"best by {many.metric}: {many.best}"] if many.best else []
    title = f"{len(many.outcomes)} runs in {say.shown(many.folder.absolute())}"
    say.table(title, ["run", "end", *names], rows, best)
