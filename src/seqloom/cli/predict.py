"""`seqloom predict RUN`: sources in, outputs out, line for line, from a file, a pipe, a keyboard or `--text`.

A run with extras reads columns: the source, a tab, then the extras in the order of its recipe.
"""

from __future__ import annotations

import os
from pathlib import Path

import typer

from seqloom.cli import bulk, language, ranking, say, several
from seqloom.cli.answers import STDIN, as_one
from seqloom.cli.order import Order, Who
from seqloom.cli.sink import same_file
from seqloom.errors import SeqloomError, nearest

FORMATS = ("text", "tsv", "jsonl")
BAD_UTF8 = ("error", "skip", "replace")
BAD_FILE = ("error", "skip")
RUN_MARKS = ("bundle", "card.json", "recipe.yaml")  # what a folder has that is a run or a bundle
OURS = (None, bulk.RAY)  # engines by which seqloom itself computes
ENGINES = ("ctranslate2", "onnx", "ray")


@several.together
def command(
    context: typer.Context,
    places: list[str] = typer.Argument(
        ...,
        metavar="RUN [RUN ...] [INPUT|-]",
        help="A run or bundle folder (several with --ensemble), then a file of sources, pictures or .npy; else stdin.",
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Write to this file (whole or not at all)."
    ),
    text: list[str] = typer.Option([], "--text", "-t", help="Predict this text instead of a file."),
    extra: list[str] = typer.Option(
        [], "--extra", metavar="NAME=TEXT", help="A further source, the same for all: tags='V;PST'."
    ),
    json_input: bool | None = typer.Option(
        None,
        "--json-input/--no-json-input",
        help="Each line is a JSON object: source, and every extra by its name; by default where a .jsonl file has it.",
    ),
    form: str | None = typer.Option(
        None,
        "--format",
        metavar="text|tsv|jsonl",
        help="text: one line per line; tsv: line, rank, score, text; jsonl: everything.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Short for --format jsonl."),
    beam: int | None = typer.Option(None, "--beam", "-b", help="Beam search of this size."),
    greedy: bool = typer.Option(False, "--greedy", help="The likeliest token at every step."),
    sample: bool = typer.Option(False, "--sample", help="Draw outputs from the model instead of searching."),
    temperature: float | None = typer.Option(
        None, "--temperature", help="With --sample: below 1 bolder, above wilder."
    ),
    top_k: int | None = typer.Option(None, "--top-k", help="With --sample: draw from the k likeliest tokens."),
    top_p: float | None = typer.Option(None, "--top-p", help="With --sample: from the likeliest tokens of this sum."),
    seed: int | None = typer.Option(None, "--seed", help="With --sample: another seed, other draws."),
    diverse: int | None = typer.Option(
        None, "--diverse", metavar="GROUPS", help="Diverse beam search: so many groups, which must divide the beam."
    ),
    diversity: float | None = typer.Option(
        None, "--diversity", help="With --diverse: what a token costs that another group has just taken (0.5)."
    ),
    n_best: int = typer.Option(1, "--n-best", "-n", help="So many outputs per line (as tsv or jsonl)."),
    top: int = typer.Option(1, "--top", min=1, help="Of a run that ranks texts: so many of the best candidates."),
    index: Path | None = typer.Option(None, "--index", metavar="FOLDER", help="Its candidates, if not in RUN/index."),
    min_length: int | None = typer.Option(None, "--min-length", help="At least so many tokens."),
    max_length: int | None = typer.Option(None, "--max-length", help="At most so many tokens."),
    min_ratio: float | None = typer.Option(None, "--min-ratio", help="At least so many tokens per source token."),
    max_ratio: float | None = typer.Option(None, "--max-ratio", help="At most so many per source token, plus 10."),
    ban: list[str] = typer.Option([], "--ban", metavar="PHRASE", help="A token or phrase that must not occur."),
    must: list[str] = typer.Option(
        [], "--must", metavar="PHRASE", help="A word or phrase that must occur (needs a beam)."
    ),
    choices: Path | None = typer.Option(
        None, "--one-of", metavar="FILE", help="Every output is one of the lines of this file."
    ),
    pattern: str | None = typer.Option(
        None,
        "--pattern",
        metavar="REGEX",
        help=r"Every output matches: literals, [a-z], ., \d, (a|b), *, +, ?, {2,4}.",
    ),
    no_repeat: int | None = typer.Option(None, "--no-repeat", help="No n-gram of this length twice."),
    prefix: str = typer.Option("", "--prefix", help="Every output begins with this text."),
    coverage_penalty: float = typer.Option(
        0.0, "--coverage-penalty", metavar="BETA", help="Prefer outputs that looked at all of the source (try 0.2)."
    ),
    replace_unknown: bool = typer.Option(
        False, "--replace-unknown", help="Replace an unknown word by the source word that the model looked at."
    ),
    mbr: int | None = typer.Option(
        None, "--mbr", metavar="SAMPLES", help="Of so many samples, the one that the others agree with most."
    ),
    mbr_metric: str | None = typer.Option(
        None,
        "--mbr-metric",
        metavar="METRIC",
        help="With --mbr: what agreement is measured by (chrf), or bleu:order=2.",
    ),
    mbr_beam: bool = typer.Option(False, "--mbr-beam", help="With --mbr: what a beam finds is a candidate as well."),
    alternatives: int | None = typer.Option(
        None, "--alternatives", metavar="K", help="With --text: the K likeliest tokens after --prefix, each completed."
    ),
    stream: bool = typer.Option(False, "--stream", help="With --text: write the output as soon as it is certain."),
    split: bool | None = typer.Option(
        None, "--split/--no-split", help="Split lines into sentences; by default where the run learned sentences."
    ),
    on_long: str = typer.Option(
        "error", "--on-long", metavar="error|split|skip", help="Sources over the recipe's maximum."
    ),
    on_bad_utf8: str = typer.Option(
        "error", "--on-bad-utf8", metavar="ACTION", help="Lines that are not UTF-8: error, skip or replace."
    ),
    hedge: float | None = typer.Option(
        None, "--hedge", metavar="P", help="Answers of a confidence below P begin with a doubt: try 0.5."
    ),
    withhold: float | None = typer.Option(
        None, "--withhold", metavar="P", help="Answers of a confidence below P are empty lines, and counted."
    ),
    on_bad_file: str = typer.Option(
        "skip",
        "--on-bad-file",
        metavar="skip|error",
        help="Pictures and other files that cannot be read: told, and an empty line each; or nothing is answered.",
    ),
    shortlist: int | None = typer.Option(
        None, "--shortlist", metavar="N", help="Weigh only N tokens per source token; 'lexicon' learns which."
    ),
    deterministic: bool = typer.Option(
        False, "--deterministic", help="One source at a time: equal to the last bit whatever stands beside it."
    ),
    ensemble: bool = typer.Option(False, "--ensemble", help="Average the probabilities of several runs."),
    fuse: Path | None = typer.Option(
        None, "--fuse", metavar="RUN", help="Let another run of the same vocabulary advise the search (shallow fusion)."
    ),
    fuse_weight: float | None = typer.Option(None, "--fuse-weight", help="With --fuse: how much it says (0.3)."),
    engine: str | None = typer.Option(
        None,
        "--engine",
        metavar="ctranslate2|onnx|ray",
        help="Run what 'export' wrote with this library; ray: with --shards, on all machines of a Ray cluster.",
    ),
    shards: int | None = typer.Option(
        None, "--shards", min=1, metavar="N", help="Predict a huge file in N shards, whole or not at all each."
    ),
    shard: int | None = typer.Option(None, "--shard", min=0, metavar="I", help="With --shards: this one, from 0."),
    join: bool = typer.Option(False, "--join", help="With --shards: join them when all are there."),
    quarantine: bool | None = typer.Option(
        None,
        "--quarantine/--no-quarantine",
        help="With --shards: a line that fails is told, and an empty line stands for it; the default with ray.",
    ),
    int8: bool = typer.Option(False, "--int8", help="On a CPU: weights in 8 bits, faster and a little less exact."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the run's recipe."),
    allow_nonfinite: bool = typer.Option(False, "--allow-nonfinite", help="Load weights that hold NaN all the same."),
    buffer: int | None = typer.Option(None, "--buffer", min=1, help="Lines to read before the first is answered."),
    device: str = typer.Option("auto", "--device", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    workers: int | None = typer.Option(
        None, "--workers", min=1, help="Processes of one thread that share a CPU's work; by default one per thread."
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No talk on stderr."),
) -> None:
    """Predict: one output line for every input line."""
    quiet = quiet or not several.leads(context)
    runs, given = _places(places, ensemble, bool(text))
    if prefix and not text and len(places) == len(runs) and engine in OURS and language.completes(runs[0]):
        text = [""]  # there is nothing else that it would need
    ranked = engine in OURS and ranking.ranks(runs[0])  # whoever has an engine needs no torch
    if ranked:
        ranking.refuse_others(context, ranking.PREDICTS, runs[0])
    else:
        ranking.refuse_ours(context, ("top", "index"), runs[0])
    alone = {"--text": bool(text), "--workers": workers is not None, "--shards": shards is not None}
    alone |= {"--engine": engine is not None, f"{runs[0]}, a run that ranks texts": ranked}
    several.refuse(context, alone, device)
    several.refuse_unread(context, given)
    wishes: dict[str, object] = {
        "strategy": _strategy(
            greedy, sample, beam, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        ),
        "beam": beam,
        "groups": diverse,
        "diversity": diversity,
        "n_best": n_best,
        "min_length": min_length,
        "max_length": max_length,
        "min_ratio": min_ratio,
        "max_ratio": max_ratio,
        "banned": ban,
        "must": must,
        "pattern": pattern,
        "no_repeat": no_repeat,
        "prefix": prefix,
        "coverage_penalty": coverage_penalty,
        "replace_unknown": replace_unknown,
        "split": split,
        "on_long": on_long,
        "on_bad_file": on_bad_file,
        "hedge": hedge,
        "withhold": withhold,
        "shortlist": shortlist,
        "deterministic": deterministic,
    }
    count = ("--top", top) if ranked else ("--n-best", n_best)
    chosen_form = _form("jsonl" if as_json else form, *count)
    _alone("--diversity", diversity, "--diverse", diverse)
    _alone("--fuse-weight", fuse_weight, "--fuse", fuse)
    _looks_closely(bool(text), alternatives, stream, chosen_form)
    one_of("--on-bad-utf8", on_bad_utf8, BAD_UTF8)
    one_of("--on-bad-file", on_bad_file, BAD_FILE)
    if not text and same_file(output, given):
        where = str(output) if output is not None and str(output) != "-" else given
        raise SeqloomError("E_USAGE", "the output would replace the input", where=where, fix="name another file")
    wishes |= {"risk": _risk(mbr, mbr_metric, mbr_beam), "one_of": _choices(choices)}

    records = bool(json_input if text or json_input is not None else _finds_records(given, quiet))
    if engine is not None:
        one_of("--engine", engine, ENGINES)
    if engine not in (None, bulk.RAY):
        _refuse_ours(engine, int8, workers)
    order = Order(
        who=Who(tuple(runs), ranked, engine, ensemble, fuse, fuse_weight, int8, index),
        how={"device": device, "threads": threads, "settings": settings, "allow_nonfinite": allow_nonfinite},
        wishes=wishes,
        form=chosen_form,
        on_bad_utf8=on_bad_utf8,  # type: ignore[arg-type]
        extra=tuple(extra),
        records=records,
        of_texts=bool(text),
        alternatives=alternatives,
        stream=stream,
        quiet=quiet,
        workers=several.workers(context, _workers(workers, threads)),
        top=top,
    )
    asked = bulk.Asked(shards, shard, join, quarantine, buffer, workers)
    if bulk.wanted(asked, order):
        return bulk.command(context, order, given, output, asked)
    if several.group_of(context) is not None:
        return _shared(context, order, given, output, buffer)
    if engine != "ctranslate2" and stream:
        return order.close_look().stream(text, output)
    if engine != "ctranslate2" and alternatives is not None:
        return order.close_look().alternatives(text, alternatives, output)
    if text:
        return order.job().answer_texts(text, output)
    return order.job().answer_lines(given, output, buffer)


def _shared(context: typer.Context, order: Order, source: str, output: Path | None, buffer: int | None) -> None:
    """Every process reads the lines and finds the outputs of some; rank 0 writes them all."""
    model, options = order.opened()
    with several.sharing(context, model) as sharing:
        job = order.job_of(sharing, options)
        job.leads = several.leads(context)
        job.answer_lines(source, output, buffer)


# --- what was asked ----------------------------------------------------------------------------------------------


def _places(places: list[str], ensemble: bool, has_text: bool) -> tuple[list[str], str]:
    """Runs and the input. Folders are runs; the one thing that is no folder, if any, is the input."""
    runs = [places[0], *(place for place in places[1:] if _may_be_run(place))]
    inputs = [place for place in places[1:] if not _may_be_run(place)]
    missing = [place for place in inputs if place != STDIN and not os.path.lexists(place)]
    if missing and ensemble:
        fix = "name the folders of all its runs"
        raise SeqloomError("E_FILE", "no such run folder or input file", where=", ".join(missing), fix=fix)
    if len(inputs) > 1:
        fix = "join texts (cat a b | seqloom predict RUN); name pictures or sounds in a list, one per line"
        raise SeqloomError("E_USAGE", f"one input at a time, got {len(inputs)}: {', '.join(inputs)}", fix=fix)
    if inputs and has_text:
        raise SeqloomError("E_USAGE", f"give --text or the file {inputs[0]}, not both")
    if missing:
        fix = 'give a file, "-" for stdin, or the text itself with --text'
        raise SeqloomError("E_FILE", "no such file", where=missing[0], fix=fix)
    if len(runs) > 1 and not ensemble:
        raise SeqloomError("E_USAGE", f"{len(runs)} runs given", fix="--ensemble averages them; or give one run")
    return as_one(runs) if ensemble else runs, inputs[0] if inputs else STDIN


def _may_be_run(place: str) -> bool:
    """A folder is, but for one of pictures or arrays, which are inputs."""
    folder = Path(place)
    if not folder.is_dir() or any((folder / name).exists() for name in RUN_MARKS):
        return folder.is_dir()
    from seqloom.data.codecs import CODECS

    known = tuple(suffix for kind in CODECS for suffix in CODECS[kind].suffixes)
    return not any(one.name.lower().endswith(known) for one in folder.iterdir())


def _strategy(
    greedy: bool, sample: bool, beam: int | None, drawing: dict[str, float | None]
) -> dict[str, object] | None:
    asked = [
        name for name, wanted in (("--greedy", greedy), ("--sample", sample), ("--beam", beam is not None)) if wanted
    ]
    if len(asked) > 1:
        raise SeqloomError("E_USAGE", f"{' and '.join(asked)} exclude each other")
    given = {key: value for key, value in drawing.items() if value is not None}
    if given and not sample:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise SeqloomError("E_USAGE", f"{names} without --sample has no meaning", fix="add --sample")
    if sample:
        return {"kind": "sample", **given}
    return {"kind": "greedy"} if greedy else None


def _alone(option: str, given: float | None, other: str, needed: object) -> None:
    """Refuse an option that has no meaning without another one."""
    if given is not None and needed is None:
        raise SeqloomError("E_USAGE", f"{option} without {other} has no meaning", fix=f"add {other}")


def _workers(asked: int | None, threads: int | None) -> int:
    """As `load` has it: 0 for one per thread."""
    if asked is not None and asked > 1 and threads is not None:
        what = f"--workers {asked} and --threads {threads}: a worker has one thread"
        raise SeqloomError("E_USAGE", what, fix="give one of both")
    return asked or 0


def _refuse_ours(engine: str, int8: bool, workers: int | None) -> None:
    """What is of seqloom's own computing."""
    if int8:
        fix = "'seqloom export RUN --quantise int8' writes 8 bits for ctranslate2"
        raise SeqloomError("E_USAGE", f"--int8 is of seqloom's own weights, not of --engine {engine}", fix=fix)
    if workers is not None:
        raise SeqloomError("E_USAGE", f"--workers is not for --engine {engine}", fix="--threads")


def _looks_closely(has_text: bool, alternatives: int | None, stream: bool, form: str) -> None:
    """What is for single texts only."""
    for option, asked in (("--alternatives", alternatives is not None), ("--stream", stream)):
        if asked and not has_text:
            raise SeqloomError("E_USAGE", f"{option} is for single texts", fix="give the text with --text")
    if stream and (alternatives is not None or form != "text"):
        what = "--stream writes plain text while it is made, and nothing else"
        raise SeqloomError("E_USAGE", what, fix="leave --alternatives, --n-best, --json and --format out")
    if alternatives is not None and alternatives < 1:
        raise SeqloomError("E_USAGE", f"--alternatives {alternatives}: at least 1")


def _risk(samples: int | None, metric: str | None, beam: bool) -> dict[str, object] | None:
    if samples is None:
        if metric is not None or beam:
            asked = "--mbr-metric" if metric is not None else "--mbr-beam"
            raise SeqloomError("E_USAGE", f"{asked} without --mbr has no meaning", fix="add --mbr 32")
        return None
    from seqloom.api.testset import metric_settings

    chosen = {} if metric is None else {"metric": metric_settings(metric)}
    return {"samples": samples, "beam": beam, **chosen}


def _choices(path: Path | None) -> list[str] | None:
    """The possible outputs of a file, one per line; blank lines are none."""
    if path is None:
        return None
    from seqloom.data.readers import read_sources

    found = [line for line in read_sources(str(path)) if line.strip()]
    if not found:
        raise SeqloomError("E_USAGE", "the list of possible outputs is empty", where=str(path), fix="one per line")
    return found


def _form(form: str | None, option: str, count: int) -> str:
    if form is None:
        return "tsv" if count > 1 else "text"
    one_of("--format", form, FORMATS)
    if form == "text" and count > 1:
        what = f"{option} {count} gives several outputs per line, which plain text cannot tell apart"
        raise SeqloomError("E_USAGE", what, fix="--format tsv or --format jsonl")
    return form


def one_of(option: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse an option's value that is none of its words."""
    if given not in known:
        raise SeqloomError("E_USAGE", f"{option} {given!r}{nearest(given, known)}", fix=f"one of: {', '.join(known)}")


def _finds_records(path: str, quiet: bool) -> bool:
    """Whether a file is one of JSON lines, by its name and its first line; what was made of such a name is told."""
    from seqloom.data.inputs import holds_records
    from seqloom.data.readers import JSON_LINES

    found = holds_records(path)
    if found and not quiet:
        say.talk(f"{path}: read as JSON lines (--no-json-input: as plain text)")
    elif path.lower().removesuffix(".gz").endswith(JSON_LINES) and not quiet:
        say.talk(f'caution: {path}: read as plain text: its first line is no JSON object with the key "source"')
    return found
