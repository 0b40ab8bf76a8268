"""A huge file predicted in shards: each is written whole with a manifest, may be asked for again, and all are joined.

`OUT.shards/` holds `job.json` (what is asked of which input, and where each shard begins: whoever comes first writes
it), and for each shard its output and its manifest, which comes last. A shard is done when its manifest says what was
asked for and its output is what the manifest says. Shards are whole buffers of lines, which are answered as one
prediction of the file would answer them. Nothing here knows who predicts, or on which machine. No torch here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqloom import wording
from seqloom.api.reading import CHUNK_LINES
from seqloom.data.files import Part, RawLine, chunks, is_regular, raw_lines, shown, span
from seqloom.errors import SeqloomError
from seqloom.files import atomic_file, atomic_write, file_error, read_json, sha256_file, sweep

T = TypeVar("T", bound=BaseModel)
FORMAT = 1
JOB = "job.json"
MOST_SHARDS = 100_000
MOST_BYTES = 100_000_000  # of a job or a manifest
MOST_POISON = 1000  # lines of a shard that may fail: with more, it is not the lines


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Span(_Written):
    """The lines of one shard, and what they are."""

    first: int = Field(ge=1)
    lines: int = Field(ge=0)
    offset: int = Field(ge=0)
    size: int = Field(ge=0)
    sha256: str

    @property
    def part(self) -> Part:
        return Part(self.first, self.lines, self.offset, self.size)


class Input(_Written):
    """A whole input, uncompressed."""

    size: int
    lines: int
    sha256: str


class Work(_Written):
    """`job.json`: what is asked, and where each shard begins."""

    format: int = Field(FORMAT, ge=1, le=FORMAT)
    input: Input
    bundles: dict[str, str]  # what answers: file -> sha256
    options: dict[str, str]  # as they were given
    buffer: int  # lines that are answered together
    shards: list[Span]


class Poison(_Written):
    """A line that could not be answered, by its number; its text is nobody's business here."""

    line: int
    error: str


class Manifest(_Written):
    """What a finished shard is, and of what it was made."""

    format: int = Field(FORMAT, ge=1, le=FORMAT)
    shard: int
    shards: int
    input: str  # sha256 of the whole input
    span: Span
    bundles: dict[str, str]
    options: dict[str, str]
    buffer: int
    size: int  # of the output
    sha256: str
    quarantined: list[Poison] = []


@dataclass(frozen=True)
class Unit:
    """Lines that are answered together: a buffer, or a part of one in which something failed."""

    shard: int
    lines: tuple[RawLine, ...]

    @property
    def halves(self) -> list[Unit]:
        half = len(self.lines) // 2
        return [Unit(self.shard, self.lines[:half]), Unit(self.shard, self.lines[half:])]


@dataclass(frozen=True)
class Bulk:
    """One job over one input: `bundles` and `options` say what is asked, `output` is where the joined lines go."""

    source: str
    output: Path
    shards: int
    bundles: Mapping[str, str]
    options: Mapping[str, str]
    buffer: int | None = None  # lines answered together; null: CHUNK_LINES, or fewer where there are few lines

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= MOST_SHARDS:
            raise SeqloomError("E_USAGE", f"--shards {self.shards:,}", fix=f"1 to {MOST_SHARDS:,}")
        if not is_regular(self.source):
            what = "shards need a file that can be read again"
            raise SeqloomError("E_USAGE", what, where=shown(self.source), fix="save the pipe in a file first")

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.shards")

    @property
    def quarantine(self) -> Path:
        """Where joining tells of lines that could not be answered."""
        return self.output.with_name(f"{self.output.name}.quarantine.jsonl")

    def output_of(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}-of-{self.shards:05d}.out"

    def manifest_of(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}-of-{self.shards:05d}.json"

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def is_planned(self) -> bool:
        """Does somebody know already where shards begin?"""
        return (self.folder / JOB).exists()

    @cached_property
    def work(self) -> Work:
        """The job as it stands in the folder, made and written there by whoever is first. E_CHANGED or E_RUN where the
        folder's job is another one."""
        path = self.folder / JOB
        if not self.is_planned:
            self._publish(path, self._surveyed())
        found = _read(path, Work, "the job of these shards")
        self._refuse_other(found)
        return found

    def _publish(self, path: Path, work: Work) -> None:
        """Several may come at once: the first one's file stays."""
        own = path.with_name(f".{JOB}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(own, work.model_dump_json(indent=1).encode())
            with suppress(FileExistsError):
                os.link(own, path)
        except OSError as error:
            raise file_error(error, path) from None
        finally:
            with suppress(OSError):
                own.unlink(missing_ok=True)

    def _surveyed(self) -> Work:
        """Read the input: how many lines there are, where shards begin, and what they hold."""
        lines = _line_count(self.source)
        buffer = self.buffer or max(1, min(CHUNK_LINES, -(-lines // self.shards)))
        buffers = -(-lines // buffer)
        starts = [min(lines, buffer * (buffers * shard // self.shards)) for shard in range(self.shards + 1)]
        places = _offsets(self.source, starts)
        digests, whole = _hashed(self.source, places[1:])
        spans = [
            Span(first=start + 1, lines=next_start - start, offset=place, size=next_place - place, sha256=digest)
            for start, next_start, place, next_place, digest in zip(
                starts, starts[1:], places, places[1:], digests, strict=False
            )
        ]
        return Work(
            input=Input(size=places[-1], lines=lines, sha256=whole),
            bundles=dict(self.bundles),
            options=dict(self.options),
            buffer=buffer,
            shards=spans,
        )

    def _refuse_other(self, found: Work) -> None:
        differences = [
            *_differences("bundle", found.bundles, self.bundles),
            *_differences("option", found.options, self.options),
        ]
        if len(found.shards) != self.shards:
            differences.append(f"{len(found.shards):,} shards there, {self.shards:,} asked for")
        if self.buffer is not None and found.buffer != self.buffer:
            differences.append(f"--buffer {found.buffer} there, {self.buffer} asked for")
        if differences:
            code = "E_CHANGED" if any(line.startswith("bundle") for line in differences) else "E_RUN"
            what = "these shards were asked for otherwise: " + "; ".join(differences)
            raise SeqloomError(code, what, where=str(self.folder), fix=self._anew)

    @property
    def _anew(self) -> str:
        return f"name another --output, or remove {shlex.quote(str(self.folder))} to begin anew"

    def refuse_changed(self, shard: int) -> None:
        """E_CHANGED when the input is not what the job was made of, as far as this shard reads it."""
        span_ = self.work.shards[shard]
        found = hashlib.sha256()
        for piece in span(self.source, span_.offset, span_.size):
            found.update(piece)
        size = self.work.input.size if _is_packed(self.source) else Path(self.source).stat().st_size
        if found.hexdigest() != span_.sha256 or size != self.work.input.size:
            what = f"the input is not the one that these shards were made of (sha256 {self.work.input.sha256[:12]}...)"
            raise SeqloomError("E_CHANGED", what, where=shown(self.source), fix=self._anew)

    # --- shards ------------------------------------------------------------------------------------------------------

    def done(self, shard: int) -> Manifest | None:
        """The manifest of a shard that is there and whole; None where it is to be made."""
        path, output = self.manifest_of(shard), self.output_of(shard)
        if not path.exists():
            return None
        found = _read(path, Manifest, "the manifest of a shard")
        if found != self._manifest(shard, found.size, found.sha256, found.quarantined):
            what = "a manifest of another job stands in the place of this shard's"
            raise SeqloomError("E_CHANGED", what, where=str(path), fix=self._anew)
        whole = output.is_file() and output.stat().st_size == found.size and sha256_file(output) == found.sha256
        return found if whole else None

    def _manifest(self, shard: int, size: int, sha256: str, quarantined: list[Poison]) -> Manifest:
        work = self.work
        return Manifest(
            shard=shard,
            shards=self.shards,
            input=work.input.sha256,
            span=work.shards[shard],
            bundles=work.bundles,
            options=work.options,
            buffer=work.buffer,
            size=size,
            sha256=sha256,
            quarantined=quarantined,
        )

    def units(self, shard: int) -> Iterator[Unit]:
        """The lines of a shard as they are answered together."""
        lines = raw_lines(self.source, self.work.shards[shard].part)
        while some := tuple(islice(lines, self.work.buffer)):
            yield Unit(shard, some)

    def write(self, shard: int, answers: Iterable[tuple[str, Sequence[Poison]]]) -> Manifest:
        """Write a shard's output as it comes, and then its manifest: a shard is done, or it is not."""
        poison: list[Poison] = []
        digest, size = hashlib.sha256(), 0
        with atomic_file(self.output_of(shard)) as file:
            for text, bad in answers:
                data = text.encode("utf-8", errors="surrogateescape")
                file.write(data)
                digest.update(data)
                size += len(data)
                poison += bad
                self._refuse_much(poison, shard)
        manifest = self._manifest(shard, size, digest.hexdigest(), poison)
        atomic_write(self.manifest_of(shard), manifest.model_dump_json(indent=1).encode())
        return manifest

    def _refuse_much(self, poison: Sequence[Poison], shard: int) -> None:
        if len(poison) > MOST_POISON:
            what = f"more than {MOST_POISON:,} lines of shard {shard} could not be answered: {poison[0].error}"
            fix = "this is more than a few bad lines: look at the input and at the options"
            raise SeqloomError("E_DATA", what, where=f"{shown(self.source)}:{poison[0].line}", fix=fix)

    # --- joining -----------------------------------------------------------------------------------------------------

    def join(self) -> tuple[int, list[Poison]]:
        """Write all shards in order to `output`; how many lines there are, and which were quarantined.

        E_DATA names the shards that are missing, and nothing is written then.
        """
        for shard in range(self.shards):
            self.refuse_changed(shard)
        found = [self.done(shard) for shard in range(self.shards)]
        missing = [shard for shard, manifest in enumerate(found) if manifest is None]
        if missing:
            listed = ", ".join(map(str, missing[:20])) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
            what = f"{len(missing):,} of {self.shards:,} shards are missing or damaged: {listed}"
            raise SeqloomError("E_DATA", what, where=str(self.folder), fix="run them (--shard), then join again")
        with atomic_file(self.output) as file:
            for shard in range(self.shards):
                for piece in _pieces(self.output_of(shard)):
                    file.write(piece)
        sweep(self.folder)
        poison = [bad for manifest in found if manifest is not None for bad in manifest.quarantined]
        self.quarantine.unlink(missing_ok=True)
        if poison:
            lines = (json.dumps(bad.model_dump(), ensure_ascii=False) + "\n" for bad in poison)
            atomic_write(self.quarantine, "".join(lines).encode())
        return self.work.input.lines, poison


# --- lines that fail -------------------------------------------------------------------------------------------------


def without_poison(
    unit: Unit, answer: Callable[[Unit], str], empty: Callable[[RawLine, SeqloomError], str]
) -> tuple[str, list[Poison]]:
    """The answers to a unit; where it fails, to its halves, until the lines are found that fail alone.

    Each of these is answered by `empty`, and told. What fails for want of memory may so be answered in smaller company.
    """
    try:
        return answer(unit), []
    except Exception as error:
        if len(unit.lines) == 1:
            line, told = unit.lines[0], as_refusal(error)
            return empty(line, told), [Poison(line=line.number, error=told.line)]
    parts = [without_poison(half, answer, empty) for half in unit.halves]
    return "".join(text for text, _ in parts), [bad for _, some in parts for bad in some]


def as_refusal(error: Exception) -> SeqloomError:
    """What went wrong with a line, in one line; what its text was stays out of it."""
    if isinstance(error, SeqloomError):
        return error
    return SeqloomError("E_INTERNAL", f"unexpected {type(error).__name__} while this line was answered")


# --- reading and comparing -------------------------------------------------------------------------------------------


def _line_count(path: str) -> int:
    lines, last = 0, b""
    for chunk in chunks(path):
        lines += chunk.count(b"\n")
        last = chunk or last
    return lines + bool(last and not last.endswith(b"\n"))


def _offsets(path: str, starts: Sequence[int]) -> list[int]:
    """Where these lines (counted from 0) begin, in bytes."""
    found: list[int] = []
    lines = offset = 0
    for chunk in chunks(path):
        ends = chunk.count(b"\n")
        place = seen = 0
        while len(found) < len(starts) and starts[len(found)] <= lines + ends:
            while lines + seen < starts[len(found)]:
                place, seen = chunk.index(b"\n", place) + 1, seen + 1
            found.append(offset + place)
        lines, offset = lines + ends, offset + len(chunk)
    return found + [offset] * (len(starts) - len(found))  # the last line may lack its end


def _hashed(path: str, ends: Sequence[int]) -> tuple[list[str], str]:
    """The sha256 of what stands before each end (and behind the one before it), and that of the whole."""
    digests: list[str] = []
    whole, own, position = hashlib.sha256(), hashlib.sha256(), 0
    for chunk in chunks(path):
        whole.update(chunk)
        rest = memoryview(chunk)
        while len(digests) < len(ends) and ends[len(digests)] <= position + len(rest):
            cut = ends[len(digests)] - position
            own.update(rest[:cut])
            digests.append(own.hexdigest())
            own, rest, position = hashlib.sha256(), rest[cut:], position + cut
        own.update(rest)
        position += len(rest)
    return digests + [own.hexdigest()] * (len(ends) - len(digests)), whole.hexdigest()


def _is_packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _differences(what: str, there: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    keys = sorted(key for key in {*there, *asked} if there.get(key) != asked.get(key))
    return [f"{what} {key}: {there.get(key, 'none')} there, {asked.get(key, 'none')} asked for" for key in keys]


def _read(path: Path, kind: type[T], what: str) -> T:
    raw = read_json(path, MOST_BYTES, what, "remove it to have it made again")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        problem = f"not {what}: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", problem, where=str(path), fix="remove it to have it made again") from None
