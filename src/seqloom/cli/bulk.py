"""`seqloom predict --shards N`: one shard (`--shard I`), all of them on a Ray cluster (`--engine ray`), or `--join`.

What a shard is and when it is done stands in `api/bulk.py`, who shares the work out in `api/cluster.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from seqloom.cli import ranking, say
from seqloom.cli.counts import Counts
from seqloom.errors import SeqloomError
from seqloom.files import sha256, sha256_file

if TYPE_CHECKING:
    from seqloom.api.bulk import Bulk, Poison, Unit
    from seqloom.cli.order import Order

RAY = "ray"
# What may differ between shards of one job: where they are made, and what is said meanwhile.
NEUTRAL = {"places", "output", "shards", "shard", "join", "buffer", "quarantine", "engine", "choices", "index", "fuse"}
NEUTRAL |= {"device", "threads", "workers", "quiet"}
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """What of shards was asked on the line."""

    shards: int | None
    shard: int | None
    join: bool
    quarantine: bool | None
    buffer: int | None
    workers: int | None


def wanted(asked: Asked, order: Order) -> bool:
    """Is it about shards? E_USAGE for options that have no meaning, or that lack another."""
    on_ray = order.who.engine == RAY
    if asked.shards is None:
        lonely = {"--shard": asked.shard is not None, "--join": asked.join, "--engine ray": on_ray}
        lonely["--quarantine"] = asked.quarantine is not None
        if given := [name for name, is_given in lonely.items() if is_given]:
            raise SeqloomError("E_USAGE", f"{given[0]} without --shards has no meaning", fix="add --shards N")
        return False
    if order.of_texts:
        raise SeqloomError("E_USAGE", "--shards is for a file, and --text is one text", fix="leave one of both out")
    ways = {"--shard": asked.shard is not None, "--join": asked.join, "--engine ray": on_ray}
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) != 1:
        fix = "--shard I makes one of them, --join puts them together, --engine ray makes and joins all"
        raise SeqloomError("E_USAGE", f"--shards with {' and '.join(chosen) or 'nothing'} to do", fix=fix)
    if asked.shard is not None and asked.shard >= asked.shards:
        what = f"--shard {asked.shard} of --shards {asked.shards}"
        raise SeqloomError("E_USAGE", what, fix=f"shards are counted from 0: 0 to {asked.shards - 1}")
    return True


def command(context: typer.Context, order: Order, source: str, output: Path | None, asked: Asked) -> None:
    """Make one shard, all of them, or what they are together."""
    from seqloom.api.bulk import Bulk
    from seqloom.data.files import mending

    assert asked.shards is not None
    if output is None or str(output) == "-":
        raise SeqloomError(
            "E_USAGE", "--shards needs --output FILE: they are kept in FILE.shards/ until they are joined"
        )
    quarantine = order.who.engine == RAY if asked.quarantine is None else asked.quarantine
    bulk = Bulk(source, output, asked.shards, _bundles(order), _options(context, order, quarantine), asked.buffer)
    if not order.quiet and not bulk.is_planned:
        say.talk(f"reading {source} once, to find where shards begin")
    with mending("--on-bad-utf8 skip or replace"):
        if asked.join:
            _join(bulk, order.quiet)
        elif asked.shard is not None:
            _make(bulk, order, asked.shard, quarantine)
        else:
            _make_all(bulk, order, quarantine, asked.workers)


# --- one shard ---------------------------------------------------------------------------------------------------


def _make(bulk: Bulk, order: Order, shard: int, quarantine: bool) -> None:
    name, span = f"shard {shard} of {bulk.shards}", bulk.work.shards[shard]
    bulk.refuse_changed(shard)
    if bulk.done(shard) is not None:
        if not order.quiet:
            say.talk(f"{name} is done already: {bulk.output_of(shard)}")
        return
    worker = Worker(order, bulk.source, quarantine)
    if not quarantine:  # what cannot be answered is found before the first answer
        for unit in bulk.units(shard):
            worker.job.refuse_unit(unit, bulk.source)
    started_at = time.monotonic()
    answers = (worker(unit) for unit in _watched(bulk.units(shard), span.lines, bulk.work.buffer))
    manifest = bulk.write(shard, ((answer.text, answer.poison) for answer in answers))
    _tell(f"{name}: ", worker.job.counts, manifest.quarantined, started_at, order.quiet)


@dataclass(frozen=True)
class Answered:
    """What is written for a unit, what of it failed, and what was counted."""

    text: str
    poison: Sequence[Poison]
    counts: Counts


class Worker:
    """Answers units; a model is opened when it is made."""

    def __init__(self, order: Order, source: str, quarantine: bool) -> None:
        self.source, self.quarantine = source, quarantine
        self.job = order.job()
        codec = self.job.asked.codec
        if codec is not None and codec.inputs(source) is not None:
            what = "shards are of a file of lines, and this is a source itself"
            raise SeqloomError("E_USAGE", what, where=source, fix="name the files in a list, one per line")

    def __call__(self, unit: Unit, fault: SeqloomError | None = None) -> Answered:
        from seqloom.api.bulk import without_poison

        before, self.job.counts = self.job.counts, Counts()
        answer = partial(self.job.answer_unit, path=self.source)
        if fault is not None:
            answer = partial(_fail, fault=fault)
        if self.quarantine:
            text, poison = without_poison(unit, answer, self.job.passed_over)
        else:
            text, poison = answer(unit), []
        own = self.job.counts
        before.join(own)
        self.job.counts = before
        return Answered(text, poison, own)


def _fail(unit: Unit, fault: SeqloomError) -> str:
    raise fault


# --- all of them -------------------------------------------------------------------------------------------------


def _make_all(bulk: Bulk, order: Order, quarantine: bool, workers: int | None) -> None:
    """What is missing is made on Ray; then all are joined."""
    from seqloom.api.cluster import Pool

    for shard in range(bulk.shards):
        bulk.refuse_changed(shard)
    missing = [shard for shard in range(bulk.shards) if bulk.done(shard) is None]
    if not order.quiet and len(missing) < bulk.shards:
        say.talk(f"{bulk.shards - len(missing):,} of {bulk.shards:,} shards are done already")
    if missing:
        threads = order.how["threads"] or (None if order.how["device"].startswith("cuda") else 1)
        alone = replace(order, who=order.who.absolute(), how={**order.how, "threads": threads}, workers=1, quiet=True)
        made = partial(Worker, alone, str(Path(bulk.source).absolute()), quarantine)
        tell: Callable[[str], None] = (lambda line: None) if order.quiet else say.talk
        with redirect_stdout(sys.stderr), Pool(made, workers, tell) as pool:  # Ray's own talk is no data
            if not order.quiet:
                say.talk(f"{pool.count:,} workers on Ray")
            _fill(bulk, missing, pool.answers(chain.from_iterable(map(bulk.units, missing))), order.quiet)
    _join(bulk, order.quiet)


def _fill(bulk: Bulk, missing: Sequence[int], answers: Iterator[list[Answered]], quiet: bool) -> None:
    counts, poison, started_at = Counts(), [], time.monotonic()

    def counted(some: Iterable[list[Answered]]) -> Iterator[tuple[str, Sequence[Poison]]]:
        for parts in some:
            for part in parts:
                counts.join(part.counts)
                yield part.text, part.poison

    total = sum(bulk.work.shards[shard].lines for shard in missing)
    coming = _watched(answers, total, bulk.work.buffer)
    for shard in missing:
        units = -(-bulk.work.shards[shard].lines // bulk.work.buffer)
        poison += bulk.write(shard, counted(islice(coming, units))).quarantined
    _tell("", counts, poison, started_at, quiet)


def _join(bulk: Bulk, quiet: bool) -> None:
    lines, poison = bulk.join()
    if not quiet:
        told = f", {len(poison):,} of them quarantined: {bulk.quarantine}" if poison else ""
        say.talk(f"{bulk.output}: {lines:,} lines of {bulk.shards:,} shards{told}")


# --- what is said ------------------------------------------------------------------------------------------------


def _tell(name: str, counts: Counts, poison: Sequence[Poison], started_at: float, quiet: bool) -> None:
    for fault in counts.faults:
        say.talk(fault.line)
    if quiet:
        return
    for bad in poison[:5]:
        say.talk(f"quarantined: line {bad.line:,}: {bad.error}")
    told = {"quarantined": len(poison)} if poison else {}
    say.talk(name + counts.summary(time.monotonic() - started_at, told))


def _watched(units: Iterable[T], lines: int, buffer: int) -> Iterator[T]:
    """A bar on stderr where a person watches."""
    if not sys.stderr.isatty():
        yield from units
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("predicting", total=lines)
        for unit in units:
            yield unit
            progress.advance(task, buffer)


# --- what a job is -----------------------------------------------------------------------------------------------


def _bundles(order: Order) -> dict[str, str]:
    """What answers depend on besides the input and the options: file -> sha256, whatever the folder is called."""
    who, marks = order.who, {}
    for number, run in enumerate([*who.runs, *([] if who.fuse is None else [str(who.fuse)])]):
        folder, name = Path(run), "" if number == 0 else f"{number + 1}/"
        places: dict[str, tuple[str, ...]] = {"card.json": ("bundle/card.json", "card.json")}
        if who.engine == "ctranslate2":
            places = {"engine.json": ("ctranslate2/engine.json", "engine.json")}
        if who.engine == "onnx":
            places["onnx.json"] = ("onnx/onnx.json",)
        if order.wishes["shortlist"] is not None:
            places["lexicon"] = ("lexicon.safetensors", "bundle/lexicon.safetensors")
        if who.ranked:
            places["index"] = ("index/card.json",)
            if who.index is not None:
                places["index"] = (str(who.index.absolute() / "card.json"),)
        for mark, names in places.items():
            found = next((folder / one for one in names if (folder / one).is_file()), None)
            if found is None:
                order.job()  # which says what is wrong with it
                raise SeqloomError("E_BUNDLE", f"no {names[0]} here", where=run)
            marks[name + mark] = sha256_file(found)
    return marks


def _options(context: typer.Context, order: Order, quarantine: bool) -> dict[str, str]:
    """The options that were given and may change an answer, by their names."""
    given = {
        max(parameter.opts, key=len): json.dumps(context.params[parameter.name], ensure_ascii=False, default=str)
        for parameter in context.command.params
        if parameter.name is not None and parameter.name not in NEUTRAL and ranking.is_given(context, parameter.name)
    }
    if order.wishes["one_of"] is not None:
        given["--one-of"] = sha256(json.dumps(order.wishes["one_of"]).encode())
    if order.who.engine not in (None, RAY):
        given["--engine"] = str(order.who.engine)
    return given | ({"--quarantine": "true"} if quarantine else {})
