"""How several processes begin one run: they compare what they were given, one prepares the run folder, all go on.

The run folder must be seen by all of them: encoded pairs and checkpoints are read from it, and rank 0 alone writes.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.api.datasets import fingerprints
from seqloom.api.folder import Sitting, check_readable, stored
from seqloom.api.prepare import Prepared
from seqloom.config import render_yaml
from seqloom.data.files import STDIN, is_regular
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_bounded
from seqloom.ranks.group import Group
from seqloom.recipe import Recipe

CALLED = ".ranks"  # in the run folder: a word by which the others know that they see the same one
_SHARED = "put the run folder (--run) where all machines see it under one name"


def agreed(ranks: Group, located: Callable[[], tuple[Recipe, Path]]) -> tuple[Recipe, Path]:
    """The recipe and the folder of this process, once all have the same recipe and the same data; E_RANKS if not."""
    wanted, folder = ranks.together(located)
    if ranks.size == 1:
        return wanted, folder
    if ":" in wanted.runtime.device:
        what = f"several processes, and one device for all of them: {wanted.runtime.device}"
        error = SeqloomError("E_USAGE", what, where="runtime.device", fix="cuda alone: each process takes its own")
        raise ranks.common(error)
    texts = ranks.gather(render_yaml(wanted))
    for rank, text in enumerate(texts):
        if text != texts[0]:
            what = f"ranks 0 and {rank} have different recipes: {_first_difference(texts[0], text)}"
            raise ranks.common(SeqloomError("E_RANKS", what, where="recipe", fix="give all the same recipe"))
    places = ranks.gather(json.dumps([socket.gethostname(), _boot(), str(Path.cwd())]))
    if len(set(places)) > 1:  # else all see the same files
        first = places.index(places[ranks.rank]) == ranks.rank
        _compare_data(ranks, ranks.together(lambda: _data_of(wanted) if first else ""))
    return wanted, folder


def _boot() -> str:
    """What tells machines apart that bear the same name, where the system says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _first_difference(one: str, other: str) -> str:
    here, there = one.splitlines(), other.splitlines()
    pairs = zip([*here, *[""] * len(there)], [*there, *[""] * len(here)], strict=False)
    left, right = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{left.strip()!r}, {right.strip()!r}"


def _data_of(wanted: Recipe) -> str:
    """Size and checksum of each data file, in the recipe's order, whatever folder it lies in."""
    check_readable(wanted.data)
    if any(path == STDIN or not is_regular(path) for paths in wanted.data.files().values() for path in paths):
        return "a pipe"  # which rank 0 alone reads
    marks = fingerprints(wanted.data).items()
    return "\n".join(f"{Path(path).name} {mark['size']} {mark['sha256']}" for path, mark in marks)


def _compare_data(ranks: Group, mine: str) -> None:
    known = {rank: text for rank, text in enumerate(ranks.gather(mine)) if text}
    first = known[min(known)]
    for rank, text in known.items():
        if text != first:
            name = next((line.split(" ")[0] for line in text.splitlines() if line not in first.splitlines()), "files")
            what = f"ranks {min(known)} and {rank} have different data: {name}"
            raise ranks.common(SeqloomError("E_RANKS", what, where="data", fix="give all the same files"))


@dataclass(frozen=True)
class Called:
    """What rank 0 has prepared; `reason` where there is nothing left to do."""

    folder: Path
    sitting: Sitting
    reason: str | None


def invite(ranks: Group, folder: Path, reason: str | None = None) -> None:
    """Everything is in its place: the others may begin."""
    if ranks.size > 1:
        word = secrets.token_hex(8)
        atomic_write(folder / CALLED, word.encode())
        ranks.tell("called", json.dumps({"folder": str(folder.absolute()), "word": word, "reason": reason}))


def said_of(ranks: Group, recipe: Recipe) -> str:
    """What a step is, and who computes what of it."""
    batches = recipe.training.accumulate
    own, rest = divmod(0 if recipe.batching.window is not None else batches, ranks.size)
    if own and not rest:
        return f"{ranks.size} processes: {own} of a step's {batches} batches for each"
    if recipe.model.ranks:
        return f"{ranks.size} processes: each encodes its rows of a batch, and holds them against the texts of all"
    hint = f"; training.accumulate: {ranks.size} gives each a batch of its own, in larger steps"
    return f"{ranks.size} processes: each takes its rows of a step's batch{'es' * (batches > 1)}{hint * (not own)}"


def follow(ranks: Group) -> Called:
    """Wait for rank 0, and open what it has prepared; E_RANKS where its folder is not to be seen from here."""
    told = json.loads(ranks.told("called"))
    folder = Path(told["folder"])
    word = folder / CALLED
    if not word.is_file() or read_bounded(word, 100).decode("ascii", errors="replace") != told["word"]:
        what = f"the run folder of rank 0 cannot be seen on {socket.gethostname()}"
        raise SeqloomError("E_RANKS", what, where=str(folder), fix=_SHARED)
    recipe = stored(folder)
    assert recipe is not None, "a run that is called to has a recipe"
    return Called(folder, Sitting(recipe, None, begins=False), told["reason"])


def answered(ranks: Group, parts: Prepared, examples: Sequence[Example]) -> list[str]:
    """The network's answers to examples: each process gives some of them, unless they are ranked against each other."""
    if ranks.size == 1 or parts.recipe.model.ranks:
        return parts.answers(examples)
    said = ranks.texts(parts.answers(examples[ranks.rank :: ranks.size]))
    return [said[place % ranks.size][place // ranks.size] for place in range(len(examples))]
