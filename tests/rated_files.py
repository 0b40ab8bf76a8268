"""Studies whose sources are pictures or sounds, for tests: made as the command makes them, from lists of names."""

from __future__ import annotations

from pathlib import Path

from scenes import write_blocks
from seqloom.rate.making import Wishes, made
from seqloom.rate.material import Sources, gathered, named_systems
from seqloom.rate.questions import chosen
from tones import write_tones

WRITERS = {"picture": write_blocks, "sound": write_tones}


def listed(folder: Path, kind: str, count: int = 3) -> Path:
    """A list of names beside their files, and what two systems said of them; gives the list."""
    pairs = WRITERS[kind](folder, count)
    names = [line.split("\t")[0] for line in pairs.read_text().splitlines()]
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in names))
    for system in ("one", "two"):
        (folder / system).write_text("".join(f"{system} said {number}\n" for number in range(count)))
    return folder / "names.txt"


def file_study(folder: Path, kind: str, count: int = 3) -> Path:
    names = listed(folder, kind, count)
    some = gathered(named_systems([str(folder / "one"), str(folder / "two")]), Sources(source=str(names)))
    made(folder / "study", some, Wishes(chosen("adequate,rank", 2), checks=0), ["anna"])
    return folder / "study"
