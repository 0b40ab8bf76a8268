"""`seqloom data prepare NAME PATH`: upstream files, or files in a recipe's form already, laid out and counted."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqloom.api.public.catalogue import PublicSet, named
from seqloom.api.public.upstream import READINGS, lines_of
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.files import atomic_file, file_error


@dataclass(frozen=True)
class Prepared:
    """What was laid out: files with their lines, and whether they were made of upstream files or only linked."""

    folder: Path
    lines: Mapping[str, int]
    linked: bool
    differing: tuple[str, ...]  # files with another number of lines than the catalogue says

    def as_dict(self) -> dict[str, Plain]:
        return {
            "folder": str(self.folder),
            "lines": dict(self.lines),
            "linked": self.linked,
            "differing": list(self.differing),
        }


def prepare(name: str, path: str | Path, output: str | Path | None = None, *, any_count: bool = False) -> Prepared:
    """Lay a public set out (default: a folder of its name). E_DATA where a file has not the lines that it should have,
    unless `any_count` takes it as it is."""
    known, place = named(name), Path(path)
    if not place.is_dir():
        raise SeqloomError("E_FILE", "no such folder", where=str(place), fix=f"get it here: {known.home}")
    goal = Path(output) if output is not None else Path(name)
    if all((place / file).is_file() for file in known.files):
        return _linked(known, place, goal, any_count)
    if name not in READINGS:
        missing = [file for file in known.files if not (place / file).is_file()]
        what = f"{name} is read as it is laid out, and {missing[0]} is missing"
        raise SeqloomError("E_FILE", what, where=str(place), fix=f"expected here: {', '.join(known.files)}")
    if goal.resolve() == place.resolve():
        raise SeqloomError("E_USAGE", "the upstream files stand there", where=str(goal), fix="another --output")
    made = READINGS[name](place)
    counts = {file: _written(goal / file, lines) for file, lines in made.items()}
    try:
        differing = _differing(known, counts, place, any_count)
    except SeqloomError:
        for file in counts:  # what was refused is not left lying about
            (goal / file).unlink()
        raise
    return Prepared(goal, counts, linked=False, differing=differing)


def _written(path: Path, lines: Iterable[str]) -> int:
    """Write the lines, gzipped where the name says so; how many there were. The same lines give the same bytes."""
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, path.parent) from None
    with atomic_file(path) as file:
        packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.suffix == ".gz" else file
        for line in lines:
            packed.write(line.encode("utf-8") + b"\n")
            count += 1
        if packed is not file:
            packed.close()
    return count


def _linked(known: PublicSet, place: Path, goal: Path, any_count: bool) -> Prepared:
    counts = {file: sum(1 for _ in lines_of(place / file)) if lines else 0 for file, lines in known.files.items()}
    differing = _differing(known, counts, place, any_count)
    if goal.resolve() != place.resolve():
        for file in known.files:
            _link(place / file, goal / file)
    return Prepared(goal, counts, linked=True, differing=differing)


def _link(file: Path, goal: Path) -> None:
    """A link to the file; a copy where the file system has no links."""
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        if goal.is_symlink() or goal.exists():
            if goal.resolve() == file.resolve():
                return
            raise SeqloomError("E_FILE", "another file stands here", where=str(goal), fix="another --output")
        try:
            goal.symlink_to(file.resolve())
        except NotImplementedError:
            shutil.copyfile(file, goal)
    except OSError as error:
        raise file_error(error, goal) from None


def _differing(known: PublicSet, counts: Mapping[str, int], where: Path, any_count: bool) -> tuple[str, ...]:
    odd = tuple(file for file, count in counts.items() if known.files.get(file, count) != count)
    if odd and not any_count:
        what = f"{odd[0]} has {counts[odd[0]]:,} lines, {known.files[odd[0]]:,} are expected"
        more = f" (and {len(odd) - 1} more files)" if len(odd) > 1 else ""
        fix = "is it whole, and of this release? --any-count takes it as it is"
        raise SeqloomError("E_DATA", what + more, where=str(where), fix=fix)
    return odd
