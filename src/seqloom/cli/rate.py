"""`seqloom rate`: people judge outputs on a local page, blind, and what came out is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.errors import INTERRUPTED, SeqloomError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqloom.rate.making import Wishes
    from seqloom.rate.material import Sources

OPTIONS: dict[str, set[str]] = {  # which of them each action understands
    "new": {
        *("systems", "data", "source", "reference", "questions", "items", "checks", "hide_reference", "seed", "rater"),
        *("device", "threads"),
    },
    "open": {"rater", "host", "port", "name"},
    "results": {"metric", "without", "careful", "csv", "as_json"},
}


def command(
    context: typer.Context,
    action: str = typer.Argument(..., metavar="new|open|results"),
    study: Path = typer.Argument(..., metavar="STUDY", help="The file that keeps the study and every click."),
    systems: list[str] = typer.Argument(
        None, metavar="[NAME=]SYSTEM...", help="new: runs, which are asked, or output files of any tool."
    ),
    data: str = typer.Option(None, metavar="FILE", help="new: test pairs (.tsv, .jsonl); else the first run's own."),
    source: str = typer.Option(None, metavar="FILE", help="new: sources, one per line."),
    reference: list[str] = typer.Option(None, metavar="FILE", help="new: references beside the sources, if any."),
    questions: str = typer.Option(
        None,
        metavar="LIST",
        help="new: any of adequate,fluent (yes or no), adequacy,fluency (1 to 5), direct (0 to 100), errors, rank.",
    ),
    items: int = typer.Option(100, min=1, help="new: how many sources to rate, drawn by the seed."),
    checks: int = typer.Option(None, min=0, help="new: planted checks; by default one for every 5 items."),
    hide_reference: bool = typer.Option(False, "--hide-reference", help="new: raters do not see references."),
    seed: int = typer.Option(1, help="new: of the items, the checks and every rater's order."),
    rater: list[str] = typer.Option(None, metavar="NAME", help="new, open: who rates; each gets a link."),
    host: str = typer.Option("127.0.0.1", help="open: address to listen on; links open it from elsewhere too."),
    port: int = typer.Option(5001, min=0, max=65535, help="open: port to listen on; 0: any that is free."),
    name: list[str] = typer.Option([], "--name", metavar="HOST", help="open: a name that the page is reached by."),
    metric: list[str] = typer.Option(None, metavar="METRIC", help="results: automatic ones to compare with."),
    without: list[str] = typer.Option(None, metavar="RATER", help="results: leave a rater out."),
    careful: bool = typer.Option(False, "--careful", help="results: leave those out who failed the checks."),
    csv: Path = typer.Option(None, metavar="FILE", help="results: every answer as a row of a CSV file."),
    as_json: bool = typer.Option(False, "--json", help="results: one JSON document on stdout."),
    device: str = typer.Option("auto", help="new: auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="new: CPU threads."),
) -> None:
    """Let people rate outputs, on a page, and tell what came out.

    Raters see source, reference and outputs, blind and in an order of their own; every click is saved at once.
    """
    if action not in OPTIONS:
        what = f"no such action: {action!r}{nearest(action, OPTIONS)}"
        raise SeqloomError("E_USAGE", what, fix="new, open or results")
    _refuse_others(context, action)
    if action == "new":
        from seqloom.rate.making import Wishes
        from seqloom.rate.material import Sources
        from seqloom.rate.questions import chosen

        asked = chosen(questions, len(systems or ()) or 2)
        wishes = Wishes(asked, items, checks, seed, not hide_reference)
        sources = Sources(data, source, tuple(reference or ()))
        return _new(study, systems or [], sources, wishes, rater or [], (device, threads))
    if action == "open":
        return _open(study, rater or [], (host, port), name)
    _results(study, metric, (without or [], careful), csv, as_json)


def _refuse_others(context: typer.Context, action: str) -> None:
    """E_USAGE for what was given and means nothing to this action."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in {"action", "study", *OPTIONS[action]} or source is None or source.name != "COMMANDLINE":
            continue
        given = "systems" if name == "systems" else max(parameter.opts, key=len)
        whose = " and ".join(other for other, known in OPTIONS.items() if name in known)
        raise SeqloomError("E_USAGE", f"{action} knows no {given}", fix=f"leave it out: it is for {whose}")


def _new(
    path: Path,
    given: Sequence[str],
    sources: Sources,
    wishes: Wishes,
    raters: Sequence[str],
    machine: tuple[str, int | None],
) -> None:
    from seqloom.rate import store
    from seqloom.rate.making import made
    from seqloom.rate.material import gathered, named_systems

    store.refuse_existing(path)
    for name in raters:
        store.refuse_name(name)
    plan = made(path, gathered(named_systems(given), sources, *machine), wishes, raters)
    planted = [candidate.role for task in plan.tasks for candidate in task.candidates if not candidate.systems]
    again = sum(task.repeats is not None for task in plan.tasks)
    counts = {"references": planted.count("reference"), "damaged": planted.count("damaged"), "repeated": again}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"
    say.talk(f"{path}: {len(plan.items):,} items, {len(plan.systems)} systems ({', '.join(plan.systems)})")
    say.talk(f"questions: {', '.join(plan.questions)}; planted checks: {told}")
    say.talk(f"begin with: {say.to_type(f'seqloom rate open {path}')}")


def _open(path: Path, raters: Sequence[str], place: tuple[str, int], names: Sequence[str]) -> None:
    from seqloom.cli.serve import refuse_missing

    refuse_missing()
    import logging

    from seqloom.rate.app import app_of
    from seqloom.rate.store import Store
    from seqloom.web import logs
    from seqloom.web.listening import Address, Listening

    with Store(path) as opened:
        for one in raters:
            opened.add(one)
        address = Address(*place)
        listener = address.bound()
        listener.listen()  # so that a link that is printed can be followed
        logs.start(logging.WARNING)
        known = opened.raters()
        if not known:
            raise SeqloomError("E_USAGE", "the study has no raters", where=str(path), fix="--rater NAME adds one")
        for one in known:
            link = f"{address.url(listener, *names[:1])}/#{opened.token(one)}"
            say.data(f"{one:<{max(map(len, known))}}  {link}")
        if not address.is_near:
            say.talk("caution: without TLS in front, links and answers can be read on their way")
        say.talk("each link is one rater's; every click is saved at once; Ctrl-C ends, and later goes on where it was")
        sys.stdout.flush()  # also into a pipe, before it serves
        server = Listening(app_of(opened, names))
        server.run([listener])
    if server.interrupted:
        raise typer.Exit(INTERRUPTED)


def _results(
    path: Path, metrics: Sequence[str] | None, left_out: tuple[Sequence[str], bool], csv: Path | None, as_json: bool
) -> None:
    from seqloom.cli.rated import print_results
    from seqloom.cli.sink import Sink, same_file
    from seqloom.rate.report import as_csv, study_result
    from seqloom.rate.store import Store

    with Store(path) as opened:
        if csv is not None and same_file(csv, str(path)):
            raise SeqloomError("E_USAGE", "--csv would overwrite the study", where=str(csv), fix="name another file")
        if as_json and str(csv) == "-":
            raise SeqloomError("E_USAGE", "--json and --csv - both write to stdout", fix="name a file for one of them")
        result = study_result(opened, *left_out, metrics or None)
        if csv is not None:
            with Sink(csv) as out:
                out.write(as_csv(opened))
    if as_json:
        say.as_json(result.as_dict())
    elif str(csv) != "-":
        print_results(result)
