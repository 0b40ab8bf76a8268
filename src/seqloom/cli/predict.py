"""`seqloom predict RUN`: sources in, outputs out, line for line, from a file, a pipe, a keyboard or `--text`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.cli.sink import Sink
from seqloom.errors import SeqloomError, nearest

if TYPE_CHECKING:
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.api.predictions import Prediction
    from seqloom.data.files import BadUtf8, Tally

FORMATS = ("text", "tsv", "jsonl")
BAD_UTF8 = ("error", "skip", "replace")
STDIN = "-"


def command(
    places: list[str] = typer.Argument(
        ...,
        metavar="RUN [RUN ...] [INPUT|-]",
        help="A run or bundle folder, then a file of sources; stdin without one.",
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file (whole or not at all)."),
    text: list[str] = typer.Option([], "--text", "-t", help="Predict this text instead of a file; may be repeated."),
    form: str | None = typer.Option(
        None, "--format", help="text: one line per line; tsv: line, rank, score, text; jsonl: everything."
    ),
    as_json: bool = typer.Option(False, "--json", help="Short for --format jsonl."),
    beam: int | None = typer.Option(None, "--beam", "-b", help="Beam search of this size."),
    greedy: bool = typer.Option(False, "--greedy", help="The likeliest token at every step."),
    sample: bool = typer.Option(False, "--sample", help="Draw outputs from the model instead of searching."),
    temperature: float | None = typer.Option(
        None, "--temperature", help="With --sample: below 1 bolder, above wilder."
    ),
    top_k: int | None = typer.Option(None, "--top-k", help="With --sample: draw from the k likeliest tokens."),
    top_p: float | None = typer.Option(None, "--top-p", help="With --sample: draw from the likeliest that hold this."),
    seed: int | None = typer.Option(None, "--seed", help="With --sample: another seed, other draws."),
    n_best: int = typer.Option(1, "--n-best", "-n", help="So many outputs per line (as tsv or jsonl)."),
    min_length: int | None = typer.Option(None, "--min-length", help="At least so many tokens."),
    max_length: int | None = typer.Option(None, "--max-length", help="At most so many tokens."),
    min_ratio: float | None = typer.Option(None, "--min-ratio", help="At least so many tokens per source token."),
    max_ratio: float | None = typer.Option(None, "--max-ratio", help="At most so many per source token (and 10)."),
    ban: list[str] = typer.Option([], "--ban", help="A token that must not occur; may be repeated."),
    no_repeat: int | None = typer.Option(None, "--no-repeat", help="No n-gram of this length twice."),
    prefix: str = typer.Option("", "--prefix", help="Every output begins with this text."),
    split: bool | None = typer.Option(
        None, "--split/--no-split", help="Split lines into sentences; by default where the run learned sentences."
    ),
    on_long: str = typer.Option("error", "--on-long", help="Over-long sources: error, split or skip."),
    on_bad_utf8: str = typer.Option("error", "--on-bad-utf8", help="Lines that are not UTF-8: error, skip or replace."),
    deterministic: bool = typer.Option(
        False, "--deterministic", help="One source at a time: equal to the last bit whatever stands beside it."
    ),
    ensemble: bool = typer.Option(False, "--ensemble", help="Average the probabilities of several runs."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the run's recipe."),
    allow_nonfinite: bool = typer.Option(False, "--allow-nonfinite", help="Load weights that hold NaN all the same."),
    buffer: int | None = typer.Option(None, "--buffer", min=1, help="Lines to read before the first is answered."),
    device: str = typer.Option("auto", "--device", help="auto, cpu, cuda or cuda:N."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No summary on stderr."),
) -> None:
    """Predict: one output line for every input line."""
    runs, given = _places(places, ensemble, bool(text))
    wishes: dict[str, object] = {
        "strategy": _strategy(
            greedy, sample, beam, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        ),
        "beam": beam,
        "n_best": n_best,
        "min_length": min_length,
        "max_length": max_length,
        "min_ratio": min_ratio,
        "max_ratio": max_ratio,
        "banned": ban,
        "no_repeat": no_repeat,
        "prefix": prefix,
        "split": split,
        "on_long": on_long,
        "deterministic": deterministic,
    }
    chosen_form = _form("jsonl" if as_json else form, n_best)
    one_of("--on-bad-utf8", on_bad_utf8, BAD_UTF8)
    if output is not None and given != STDIN and not text and _same_file(output, given):
        raise SeqloomError("E_USAGE", "the output would replace the input", where=str(output))

    from seqloom.api.load import load, load_ensemble

    options = _options(wishes)
    how = {"device": device, "threads": threads, "settings": settings, "allow_nonfinite": allow_nonfinite}
    model = load_ensemble(runs, **how) if ensemble else load(runs[0], **how)  # type: ignore[arg-type]
    options.searching(model.recipe.search)  # what cannot be met is said before anything is read
    job = _Job(model, options, chosen_form, on_bad_utf8, quiet)  # type: ignore[arg-type]
    if text:
        job.answer_texts(text, output)
    else:
        job.answer_lines(given, output, buffer)


# --- what was asked ----------------------------------------------------------------------------------------------


def _places(places: list[str], ensemble: bool, has_text: bool) -> tuple[list[str], str]:
    """Runs and the input. Folders are runs; the one thing that is no folder, if any, is the input."""
    runs = [places[0], *(place for place in places[1:] if Path(place).is_dir())]
    inputs = [place for place in places[1:] if not Path(place).is_dir()]
    if len(inputs) > 1:
        fix = "join the files (cat a b | seqloom predict RUN), or give texts with --text"
        raise SeqloomError("E_USAGE", f"one input at a time, got {len(inputs)}: {', '.join(inputs)}", fix=fix)
    if inputs and has_text:
        raise SeqloomError("E_USAGE", f"give --text or the file {inputs[0]}, not both")
    if inputs and inputs[0] != STDIN and not os.path.lexists(inputs[0]):
        fix = 'give a file, "-" for stdin, or the text itself with --text'
        raise SeqloomError("E_FILE", "no such file", where=inputs[0], fix=fix)
    if len(runs) > 1 and not ensemble:
        raise SeqloomError("E_USAGE", f"{len(runs)} runs given", fix="--ensemble averages them; or give one run")
    if len(runs) == 1 and ensemble:
        raise SeqloomError("E_USAGE", "--ensemble needs several runs", fix="seqloom predict A B --ensemble")
    return runs, inputs[0] if inputs else STDIN


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


def _form(form: str | None, n_best: int) -> str:
    if form is None:
        return "tsv" if n_best > 1 else "text"
    one_of("--format", form, FORMATS)
    if form == "text" and n_best > 1:
        what = f"--n-best {n_best} gives several outputs per line, which plain text cannot tell apart"
        raise SeqloomError("E_USAGE", what, fix="--format tsv or --format jsonl")
    return form


def one_of(option: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse an option's value that is none of its words."""
    if given not in known:
        raise SeqloomError("E_USAGE", f"{option} {given!r}{nearest(given, known)}", fix=f"one of: {', '.join(known)}")


def _options(wishes: dict[str, object]) -> Options:
    from seqloom.api.options import Options
    from seqloom.config import validated

    try:
        return validated(Options, wishes, "options")
    except SeqloomError as error:
        raise SeqloomError("E_USAGE", error.what, fix="'seqloom predict --help' shows how") from None


def _same_file(one: Path, other: str) -> bool:
    return one.exists() and one.is_file() and os.path.samefile(one, other)


# --- answering ---------------------------------------------------------------------------------------------------


@dataclass
class _Job:
    """One model, one way to ask it, one form of answers; counts while it answers."""

    model: Model
    options: Options
    form: str
    on_bad_utf8: BadUtf8
    quiet: bool

    def __post_init__(self) -> None:
        self.lines = self.empty = self.long = self.truncated = 0
        self.tokens = self.source_tokens = 0
        self.unknown = 0.0

    def answer_texts(self, texts: list[str], output: Path | None) -> None:
        """Texts of the command line; line breaks inside them are kept."""
        self.model.refuse_long(texts, self.options, "--text")
        self._answer(self.model.predict(texts, self.options, name="--text"), output, keep_breaks=True)

    def answer_lines(self, path: str, output: Path | None, buffer: int | None) -> None:
        from seqloom.api.model import CHUNK_LINES
        from seqloom.data.files import Tally, is_regular, shown
        from seqloom.data.readers import read_sources

        typed = path == STDIN and sys.stdin.isatty()
        total = None
        if is_regular(path):  # read twice: what cannot be answered is found before the first answer
            counted = _Counted(read_sources(path, on_bad_utf8=self.on_bad_utf8))
            self.model.refuse_long(counted, self.options, shown(path))
            total = counted.count
        if typed and not self.quiet:
            say.talk(f"{self.model!r}\ntype a source and press Enter; Ctrl-D ends")
            self.quiet = True  # how fast a person types is nobody's business
        tally = Tally()
        sources = read_sources(path, on_bad_utf8=self.on_bad_utf8, tally=tally)
        chunk = buffer or (1 if typed else CHUNK_LINES)
        with _progress(total, output) as tick:
            predictions = self.model.predict(sources, self.options, chunk, shown(path))
            self._answer(tick(predictions), output, flush=chunk == 1, tally=tally)

    def _answer(
        self,
        predictions: Iterable[Prediction],
        output: Path | None,
        *,
        keep_breaks: bool = False,
        flush: bool = False,
        tally: Tally | None = None,
    ) -> None:
        started_at = time.monotonic()
        with Sink(output) as out:
            for number, prediction in enumerate(predictions, start=1):
                self._count(prediction)
                out.write(_written(prediction, number, self.form, keep_breaks), flush)
        if not self.quiet:
            say.talk(self._summary(time.monotonic() - started_at, tally))

    def _count(self, prediction: Prediction) -> None:
        self.lines += 1
        self.tokens += len(prediction.tokens)
        self.source_tokens += prediction.length
        self.unknown += prediction.unknown * prediction.length
        self.truncated += prediction.best.truncated
        if prediction.skipped:
            self.empty += not prediction.source.strip()
            self.long += bool(prediction.source.strip())

    def _summary(self, elapsed: float, tally: Tally | None) -> str:
        elapsed = max(elapsed, 1e-9)
        speed = f"{self.lines / elapsed:,.0f} lines/s, {self.tokens / elapsed:,.0f} tokens/s"
        parts = [f"{self.lines:,} line{'' if self.lines == 1 else 's'} in {elapsed:.1f} s ({speed})"]
        parts.append(f"{100 * self.unknown / max(1, self.source_tokens):.1f} % of source tokens unknown")
        parts.append(f"{self.truncated:,} truncated")
        if self.empty:
            parts.append(f"{self.empty:,} empty")
        if self.long:
            parts.append(f"{self.long:,} over-long skipped")
        parts += [f"{count:,} {name.replace('_', ' ')}" for name, count in (tally or {}).items()]
        return "; ".join(parts)


def _written(prediction: Prediction, number: int, form: str, keep_breaks: bool) -> str:
    if form == "jsonl":
        return json.dumps({"line": number, **prediction.as_dict()}, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "tsv":
        rows = enumerate(prediction.hypotheses, start=1)
        return "".join(f"{number}\t{rank}\t{one.score:.6f}\t{_flat(one.text)}\n" for rank, one in rows)
    return (prediction.text if keep_breaks else _flat(prediction.text, tabs=True)) + "\n"


def _flat(text: str, tabs: bool = False) -> str:
    """On one line, so that lines in are lines out; in a table also within one cell."""
    text = text.replace("\n", " ")
    return text if tabs else text.replace("\t", " ")


class _Counted:
    """Passes lines on and counts them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.count = lines, 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.count += 1
            yield line


@contextmanager
def _progress(
    total: int | None, output: Path | None
) -> Iterator[Callable[[Iterable[Prediction]], Iterable[Prediction]]]:
    """A bar on stderr where a person watches and the answers go elsewhere."""
    elsewhere = output is not None or not sys.stdout.isatty()
    if total is None or not elsewhere or not sys.stderr.isatty():
        yield lambda predictions: predictions
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield lambda predictions: progress.track(predictions, total=total, description="predicting")
