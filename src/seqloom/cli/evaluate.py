"""`seqloom evaluate`: a run or an output file against a test set, as a table, as JSON, as plots."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqloom.cli import ranking, say, several
from seqloom.cli.answers import as_one
from seqloom.cli.judged import print_report, print_search_errors, unseen_labels
from seqloom.cli.language import Asked
from seqloom.cli.language import keep as keep_language
from seqloom.cli.reporting import report_path, written
from seqloom.cli.sink import Sink, same_file
from seqloom.errors import SeqloomError, nearest

if TYPE_CHECKING:
    from seqloom.api.evaluate import Judge, RunEvaluation
    from seqloom.api.language import LanguageEvaluation
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.api.retriever import Retriever
    from seqloom.api.search_errors import SearchErrors
    from seqloom.data.readers import Example


class Part(StrEnum):
    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


class OnLong(StrEnum):
    ERROR = "error"
    SPLIT = "split"
    SKIP = "skip"


@several.together
def command(
    context: typer.Context,
    runs: list[str] = typer.Argument(None, metavar="[RUN ...]", help="The run to judge; several with --ensemble."),
    data: str = typer.Option(
        None, metavar="FILE", help="Test pairs: a .tsv or .jsonl file (also .gz), '-', or {source: F, target: F}."
    ),
    source: str = typer.Option(None, metavar="FILE", help="Test sources, one per line."),
    reference: list[str] = typer.Option(None, metavar="FILE", help="References, line by line beside the sources."),
    part: Part = typer.Option(Part.TEST, help="Which part of the recipe's own data to judge on."),
    outputs: str = typer.Option(None, metavar="FILE", help="Judge this output file of any tool; no run predicts."),
    against: str = typer.Option(
        None, metavar="RUN|FILE", help="A second run or output file for the same test, in the same tables."
    ),
    metric: list[str] = typer.Option(
        None,
        metavar="METRIC",
        help="bleu, bleu:order=2, chrf, ter, meteor, nist, cider, rouge_1, rouge_2, rouge_l, distinct_1, distinct_2, "
        "exact, string_error, wer, cer or per; of labels accuracy, f1 or span_f1; else the recipe's.",
    ),
    among: str = typer.Option(
        None, metavar="all|N", help="Of a run that ranks texts: each against all targets of the set, or 1 of N, drawn."
    ),
    search: str = typer.Option(None, metavar="LIST", help="Searches to compare, such as greedy,beam=5."),
    beam: int = typer.Option(None, help="Beam size; the recipe's search if not given."),
    greedy: bool = typer.Option(False, "--greedy", help="Greedy search."),
    on_long: OnLong = typer.Option(OnLong.SKIP, help="Sources over the recipe's maximum: skipped ones count as wrong."),
    split: bool = typer.Option(None, "--split/--no-split", help="Split paragraphs into sentences, as predict does."),
    ensemble: bool = typer.Option(False, "--ensemble", help="Judge several runs as one model."),
    plot: Path = typer.Option(
        None, metavar="FOLDER", help="Write plots there: by length, by frequency, and reliability."
    ),
    write_outputs: Path = typer.Option(None, metavar="FILE", help="Write the outputs to this file, one per line."),
    fail_under: list[str] = typer.Option(
        None, metavar="METRIC=VALUE", help="Exit 7 unless this is reached (by error rates: not exceeded)."
    ),
    search_errors: int = typer.Option(
        None, min=1, help="On so many sources: how often do beams of 1 to 10 miss the best output?"
    ),
    diagnose: bool = typer.Option(
        False, "--diagnose", help="Tell search errors from model errors, with their symptoms and the worst examples."
    ),
    contrast: str = typer.Option(
        None, metavar="FILE", help="Of a language model: good, tab, bad (tab, group): is the good text likelier?"
    ),
    last_word: bool = typer.Option(
        False, "--last-word", help="Of a language model: how often does it say the last word of a text?"
    ),
    ngrams: int = typer.Option(
        None, min=1, max=10, help="Of a language model: beside it, what counts of so many tokens make of the texts."
    ),
    report: Path = typer.Option(None, metavar="FILE", help="Write the report there instead of RUN/report.html."),
    no_report: bool = typer.Option(False, "--no-report", help="Write no report."),
    int8: bool = typer.Option(False, "--int8", help="On a CPU: with weights in 8 bits, as 'predict --int8' answers."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the run's recipe."),
    samples: int = typer.Option(1000, min=1, max=1_000_000, help="Bootstrap samples of the 95 % intervals."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Judge a run or an output file, with intervals and breakdowns."""
    from seqloom.api.evaluate import Judge
    from seqloom.api.testset import chosen_examples

    alone = {"--outputs": outputs is not None, "--against": against is not None, "--diagnose": diagnose}
    alone |= {"--search-errors": search_errors is not None, "test pairs from stdin": data == "-"}
    several.refuse(context, alone, device)
    if len(runs or []) == 1 and ranking.ranks(runs[0]):
        several.refuse(context, {f"{runs[0]}, a run that ranks texts": True}, device)
        ranking.refuse_others(context, ranking.EVALUATES, runs[0])
        retriever = _ranker(runs[0], {"device": device, "threads": threads, "settings": settings})
        judge = Judge(None, metric or retriever.recipe.evaluation.metrics, samples)
        gates = [_gate(text, judge, False) for text in fail_under or []]
        examples = chosen_examples(retriever.recipe, data, source, reference or (), part.value, True)
        _spare_inputs("--write-outputs", write_outputs, judge, data, [source, *(reference or [])])
        _keep(gates, _ranked(retriever, judge, examples, among, write_outputs, as_json))
        return
    ranking.refuse_ours(context, ("among",), " ".join(runs or []))
    if outputs is not None and (beam is not None or greedy or search is not None) and against is None:
        raise SeqloomError(
            "E_USAGE", "an output file is judged as it is: no search is made", fix="leave out the search"
        )
    if diagnose and outputs is not None:
        fix = "leave --outputs or --diagnose out"
        raise SeqloomError("E_USAGE", "an output file cannot be diagnosed: only a run can score references", fix=fix)
    how = {"device": device, "threads": threads, "settings": settings, "int8": int8}
    how["workers"] = several.workers(context, 0)
    model = _opened(runs or [], ensemble, how)
    if model is None and outputs is None:
        raise SeqloomError("E_USAGE", "nothing to judge", fix="give a RUN, or --outputs FILE with --reference FILE")
    if write_outputs is not None and str(write_outputs) == "-":
        raise SeqloomError("E_USAGE", "stdout holds the report", fix="name a file, or use 'seqloom predict'")
    if model is not None and model.codecs.continues and outputs is None:
        several.refuse(context, {f"{runs[0]}, a language model": True}, device)
        texts = chosen_examples(model.recipe, data, None, (), part.value, True)
        keep_language(fail_under or [], _language(model, texts, Asked(contrast, last_word, ngrams), as_json))
        return
    if contrast is not None or last_word or ngrams is not None:
        what = "--contrast, --last-word and --ngrams are for a language model"
        raise SeqloomError("E_USAGE", what, fix="leave them out")
    page = report_path(runs or [], report, no_report, "" if outputs is None else "an output file has no inside")
    judge = Judge(model, metric, samples)
    gates = [_gate(text, judge, model is not None and outputs is None) for text in fail_under or []]
    if plot is not None:
        _plot_folder(plot)
    examples = chosen_examples(judge.recipe, data, source, reference or (), part.value, outputs is None)
    for flag, file in (("--write-outputs", write_outputs), ("--report", page)):
        _spare_inputs(flag, file, judge, data, [source, outputs, against, *(reference or [])])
    options = _options(beam, greedy, search, on_long.value, split)
    systems: list[RunEvaluation] = []
    if outputs is not None:
        systems.append(_file(judge, outputs, examples))
    elif model is not None:
        with several.sharing(context, model) as sharing:
            if not several.leads(context):
                return _find(sharing, examples, options)
            systems += [_run(judge, sharing, examples, wish, diagnose) for wish in options]
    if against is not None:
        systems.append(_second(judge, against, examples, options[-1], (device, threads), diagnose))
    systems = _told_apart(systems, outputs or " ".join(runs), against)
    _caution(examples, model, outputs, systems[0])
    if write_outputs is not None:
        _write_outputs(write_outputs, systems[0])
    missed = None if search_errors is None else _search_errors(model, examples[:search_errors])
    if as_json:
        others = {"others": [system.as_dict() for system in systems[1:]]} if systems[1:] else {}
        proven = {} if missed is None else {"search_errors": missed.as_dict()}
        say.as_json({**systems[0].as_dict(), **others, **proven})
    else:
        print_report(systems)
        print_search_errors(missed)
    if plot is not None:
        _draw(systems, plot)
    if page is not None and model is not None:
        _report(page, judge, model, examples, systems, options[0])
    _keep(gates, systems[0])


def _ranker(run: str, how: dict[str, Any]) -> Retriever:
    from seqloom.api.retriever import load_retriever

    return load_retriever(run, **how)


def _ranked(
    retriever: Retriever, judge: Judge, examples: list[Example], among: str | None, lists: Path | None, as_json: bool
) -> RunEvaluation:
    """A run that ranks texts: lists are judged, and there is nothing to search, diagnose or draw."""
    from seqloom.api.ranking import evaluate_ranking

    found = evaluate_ranking(retriever, examples, ranking.protocol_of(among), judge)
    if lists is not None:
        _write_outputs(lists, found)
    if as_json:
        say.as_json(found.as_dict())
    else:
        print_report([found])
    return found


def _language(model: Model, texts: list[Example], asked: Asked, as_json: bool) -> LanguageEvaluation:
    """A language model writes no outputs to be judged: texts are scored."""
    from seqloom.cli import language

    outcome = language.judged_language(model, texts, asked)
    if as_json:
        say.as_json(language.as_dict(outcome))
    else:
        language.print_language(outcome)
    return outcome.found


# --- what is asked for ---------------------------------------------------------------------------------------------


def _opened(runs: list[str], ensemble: bool, how: dict[str, Any]) -> Model | None:
    from seqloom.api.load import load, load_ensemble

    if ensemble:
        return load_ensemble(as_one(runs), **how)
    if len(runs) > 1:
        fix = "--ensemble judges them as one, --against RUN beside each other, 'seqloom compare A B' which is better"
        raise SeqloomError("E_USAGE", f"{len(runs)} runs", fix=fix)
    return load(runs[0], **how) if runs else None


def _search_errors(model: Model | None, examples: list[Example]) -> SearchErrors:
    from seqloom.api.search_errors import measure_search_errors

    if model is None:
        raise SeqloomError("E_USAGE", "search errors are those of a run", fix="give a RUN")
    return measure_search_errors(model, [example.inputs for example in examples])


def _options(beam: int | None, greedy: bool, search: str | None, on_long: str, split: bool | None) -> list[Options]:
    """One for each search to try."""
    from seqloom.api.options import Options
    from seqloom.config import validated

    if (beam is not None) + greedy + (search is not None) > 1:
        raise SeqloomError("E_USAGE", "--beam, --greedy and --search all choose the search", fix="give one of them")
    wishes = [f"beam={beam}"] if beam is not None else ["greedy"] if greedy else (search or "recipe").split(",")
    found = []
    for wish in wishes:
        kind, _, size = wish.strip().partition("=")
        if kind not in ("recipe", "greedy", "beam") or (kind == "beam" and not size.lstrip("-").isdecimal()):
            fix = "such as greedy,beam=5"
            raise SeqloomError("E_USAGE", f"not a search: {wish!r}{nearest(kind, ['greedy', 'beam'])}", fix=fix)
        chosen = {"greedy": {"strategy": "greedy"}, "beam": {"beam": size}}.get(kind, {})
        found.append(validated(Options, {**chosen, "on_long": on_long, "split": split}, "--search"))
    return found


def _gate(text: str, judge: Judge, has_perplexity: bool) -> tuple[str, float]:
    """`bleu=20`: the metric, by kind or by name, and the value to reach."""
    word, _, value = text.partition("=")
    known = {word.lower(): word for word in judge.metrics}
    known |= {metric.name.lower(): word for word, metric in judge.metrics.items()}
    known |= {"perplexity": "perplexity"} if has_perplexity else {}
    if word.strip().lower() not in known:
        what = f"--fail-under {text}: {word!r} is not measured{nearest(word, known)}"
        raise SeqloomError("E_USAGE", what, fix=f"measured: {', '.join(dict.fromkeys(known.values()))}")
    try:
        wanted = float(value)
        if not math.isfinite(wanted):
            raise ValueError
        return known[word.strip().lower()], wanted
    except ValueError:
        raise SeqloomError("E_USAGE", f"--fail-under {text}: not of the form METRIC=VALUE", fix="bleu=20") from None


def _keep(gates: list[tuple[str, float]], system: RunEvaluation) -> None:
    """E_QUALITY names every gate that was missed."""
    missed = []
    for word, wanted in gates:
        higher = word != "perplexity" and system.scores[word].higher_is_better
        value = system.perplexity if word == "perplexity" else system[word]
        assert value is not None, "perplexity is a gate only where a model was judged"
        if not (value >= wanted if higher else value <= wanted):
            missed.append(f"{word} {value:.2f} is {'under' if higher else 'over'} {wanted:g}")
    if missed:
        raise SeqloomError("E_QUALITY", "the quality gate was missed: " + ", ".join(missed), where=system.name)


# --- the systems ---------------------------------------------------------------------------------------------------


def _run(judge: Judge, model: Model, examples: list[Example], options: Options, diagnose: bool) -> RunEvaluation:
    from seqloom.api.testset import prepared

    return judge.run(model, prepared(examples, judge.recipe), options, diagnose)


def _find(model: Model, examples: list[Example], options: list[Options]) -> None:
    """What another rank does for rank 0, which judges: its share of the outputs."""
    from seqloom.api.testset import prepared

    for wish in options:
        deque(model.predict([example.inputs for example in prepared(examples, model.recipe)], wish), maxlen=0)


def _file(judge: Judge, path: str, examples: list[Example]) -> RunEvaluation:
    from seqloom.api.testset import aligned, read_outputs

    lines, items = aligned(read_outputs(path), examples, judge.recipe, path)
    return judge.outputs(Path(path).name, lines, items)


def _second(
    judge: Judge,
    system: str,
    examples: list[Example],
    options: Options,
    machine: tuple[str, int | None],
    diagnose: bool,
) -> RunEvaluation:
    from seqloom.api.testset import OTHER_DATA, same_data

    if not Path(system).is_dir():
        return _file(judge, system, examples)
    model = _opened([system], False, {"device": machine[0], "threads": machine[1], "workers": 0})
    assert model is not None
    if judge.recipe is not None and not same_data(judge.recipe, model.recipe):
        say.talk(f"caution: {system} {OTHER_DATA}")
    return _run(judge, model, examples, options, diagnose)


def _told_apart(systems: list[RunEvaluation], first: str, second: str | None) -> list[RunEvaluation]:
    """Names that differ: by what was typed where short names are equal, by the search where one run tried several."""
    if second is not None and systems[-1].name == systems[0].name:
        systems = [*(replace(system, name=first) for system in systems[:-1]), replace(systems[-1], name=second)]
    names = [system.name for system in systems]
    found = []
    for system in systems:
        if system.decoding is not None and names.count(system.name) > 1:
            system = replace(system, name=f"{system.name}, {system.decoding.search}")
        found.append(system)
    return found


def _spare_inputs(flag: str, path: Path | None, judge: Judge, data: str | None, named: list[str | None]) -> None:
    """Outputs and reports never overwrite what they are judged by, nor what the run was trained on."""
    from seqloom.api.testset import named_dataset
    from seqloom.data.readers import files_of

    tested = [] if data is None else files_of(named_dataset(data, "--data"))
    trained = [] if judge.recipe is None else [file for files in judge.recipe.data.files().values() for file in files]
    for name in (*named, *tested, *trained):
        if path is not None and name is not None and same_file(path, name):
            raise SeqloomError("E_USAGE", f"{flag} would overwrite an input", where=name, fix="name another")


def _caution(examples: list[Example], model: Model | None, outputs: str | None, system: RunEvaluation) -> None:
    """What a reader of the numbers must know and would not see in them."""
    if outputs is not None and model is not None:
        say.talk(f"{outputs} is judged as it is: {model.name} lends test set and metrics, and predicts nothing")
    may_be_empty = model is not None and "target" in model.recipe.model.may_be_empty  # no label is an answer as well
    empty = sum(not any(text.strip() for text in example.references) for example in examples)
    if empty and not may_be_empty:
        say.talk(f"caution: {empty:,} of {len(examples):,} examples have an empty reference")
    if system.by_label is not None and system.by_label.unseen:
        say.talk(f"caution: {unseen_labels(system.by_label)}")


def _write_outputs(path: Path, system: RunEvaluation) -> None:
    with Sink(path) as out:
        for output in system.outputs:
            out.write(output.replace("\r\n", " ").replace("\n", " ") + "\n")  # lines in are lines out


def _report(
    path: Path, judge: Judge, model: Model, examples: list[Example], systems: list[RunEvaluation], options: Options
) -> None:
    from seqloom.api.report import report, save
    from seqloom.api.testset import prepared

    written(path, lambda: save(path, report(judge, model, prepared(examples, judge.recipe), systems, options)))


# --- plots ---------------------------------------------------------------------------------------------------------


def _plot_folder(folder: Path) -> None:
    """Make it now: a folder that cannot be written, or a package that is missing, is no news for the end."""
    from importlib.util import find_spec

    from seqloom.files import file_error

    if find_spec("matplotlib") is None:
        raise SeqloomError("E_EXTRA", "plots need matplotlib", where="--plot", fix="pip install 'seqloom[plot]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, folder, "make the folder") from None


def _draw(systems: list[RunEvaluation], folder: Path) -> None:
    from seqloom.metrics.plots import plot_by_length, plot_frequency, plot_reliability

    written = []
    for word, score in systems[0].scores.items():
        series = {system.name: system.evaluation.by_length.get(score.name, ()) for system in systems}
        if any(series.values()):
            written.append(folder / f"by-length-{word}.png")
            plot_by_length(series, score.name, written[-1], systems[0].length_unit)
    known = {system.name: system.by_frequency for system in systems if system.by_frequency is not None}
    if known:
        written.append(folder / "by-frequency.png")
        plot_frequency(known, written[-1])
    decoded = [(system.name, system.decoding) for system in systems if system.decoding is not None]
    for number, (name, told) in enumerate(decoded, start=1):
        written.append(folder / (f"reliability-{number}.png" if len(decoded) > 1 else "reliability.png"))
        plot_reliability(told.confidence.bins, told.confidence.ece, written[-1], name)
    say.talk("plots: " + ", ".join(say.shown(path) for path in written))
