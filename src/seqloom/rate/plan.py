"""What a study shows: items, the outputs for each, and checks planted among them. Made once, from one seed.

A task is an item as raters see it. Systems that said the same share a candidate: it is shown once and counts for all.
Three kinds of check tell careless raters from careful ones: a reference shown as an output, a damaged copy of an
output beside it, and an item that comes twice. Nothing here is saved or served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seqloom.errors import SeqloomError
from seqloom.rate.questions import QUESTIONS

SHARE = 5  # by default one check for so many items
FEW = 4  # words: below, characters are damaged
TRIES = 20
MOST_BYTES = 50_000_000  # of a picture or sound
Role = Literal["output", "reference", "damaged"]
Picture = Literal["image/jpeg", "image/png", "image/webp", "image/bmp"]
Sound = Literal["audio/wav", "audio/flac", "audio/ogg", "audio/mpeg"]
Type = Picture | Sound


class Part(BaseModel):
    """Part of a plan: never changed, and read back from disk with care."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Media(Part):
    """A picture or sound that is an item's source: its file as it was when the study was made."""

    kind: Literal["picture", "sound"]
    path: str
    size: int = Field(ge=0, le=MOST_BYTES)
    sha256: str
    type: Type  # by its contents
    converted: bool = False  # browsers do not know its form: it is sent as `type`
    caption: str = ""  # what else is asked with it


class Item(Part):
    """A source with its references, and where it was read."""

    source: str  # of a picture or sound the name of its file
    references: tuple[str, ...]
    where: str
    media: Media | None = None


class Candidate(Part):
    """One text of a task. `systems` said it, by number; none where it was only planted."""

    text: str
    systems: tuple[int, ...] = ()
    role: Role = "output"
    original: int | None = None  # of a damaged copy: the candidate of this task it was made from


class Task(Part):
    """One item with what is shown for it. `repeats` is the task that it shows a second time."""

    item: int
    candidates: tuple[Candidate, ...]
    repeats: int | None = None

    @property
    def outputs(self) -> list[int]:
        """The candidates that systems said."""
        return [place for place, candidate in enumerate(self.candidates) if candidate.systems]


class Plan(Part):
    """A whole study, before anybody rates."""

    systems: tuple[str, ...]
    questions: tuple[str, ...]
    items: tuple[Item, ...]
    tasks: tuple[Task, ...]
    seed: int
    shows_reference: bool
    metrics: tuple[dict[str, object], ...] = ()  # settings of the automatic ones to compare with

    @model_validator(mode="after")
    def _whole(self) -> Plan:
        """What is spoken of is there."""
        if any(name not in QUESTIONS for name in self.questions):
            raise ValueError(f"questions are of {', '.join(QUESTIONS)}")
        for task in self.tasks:
            originals = [candidate.original for candidate in task.candidates if candidate.original is not None]
            systems = [system for candidate in task.candidates for system in candidate.systems]
            good = 0 <= task.item < len(self.items) and bool(task.candidates)
            good &= all(0 <= place < len(task.candidates) for place in originals)
            good &= all(0 <= system < len(self.systems) for system in systems)
            good &= task.repeats is None or 0 <= task.repeats < len(self.tasks)
            if not good:
                raise ValueError("a task speaks of what is not there")
        return self


def tasks_of(items: Sequence[Item], outputs: Sequence[Sequence[str]], checks: int, seed: int) -> tuple[Task, ...]:
    """A task for every item, with `checks` of them planted; `outputs[system][item]`."""
    rng = Random(f"{seed} checks")
    tasks = [Task(item=i, candidates=_candidates([texts[i] for texts in outputs])) for i in range(len(items))]
    kinds: list[Callable[[Task], Task | None]] = [lambda task: _with_damage(task, rng)]
    if any(item.references for item in items):
        kinds.append(lambda task: _with_reference(task, items[task.item]))
    again: list[Task] = []
    free = rng.sample(range(len(items)), len(items))
    for number in range(checks):
        kind = number % (len(kinds) + 1)
        if kind == len(kinds):
            place = free.pop()
            again.append(Task(item=place, candidates=tasks[place].candidates, repeats=place))
            continue
        for place in free:
            planted = kinds[kind](tasks[place])
            if planted is not None:
                tasks[place] = planted
                free.remove(place)
                break
    return (*tasks, *again)


def checks_for(wanted: int | None, items: int) -> int:
    """How many checks to plant: as asked, else one for every few items and three at least."""
    if wanted is None:
        return min(items, max(3, items // SHARE))
    if wanted > items:
        what = f"{wanted:,} checks, but only {items:,} items to plant them in"
        raise SeqloomError("E_USAGE", what, where="--checks", fix="ask for fewer")
    return wanted


def _candidates(texts: Sequence[str]) -> tuple[Candidate, ...]:
    """Equal outputs are one candidate."""
    known: dict[str, list[int]] = {}
    for system, text in enumerate(texts):
        known.setdefault(text, []).append(system)
    return tuple(Candidate(text=text, systems=tuple(systems)) for text, systems in known.items())


def _with_reference(task: Task, item: Item) -> Task | None:
    """The same task with a reference among its outputs; None where there is none that is new."""
    said = {candidate.text for candidate in task.candidates}
    new = [text for text in item.references if text.strip() and text not in said]
    if not new:
        return None
    return task.model_copy(update={"candidates": (*task.candidates, Candidate(text=new[0], role="reference"))})


def _with_damage(task: Task, rng: Random) -> Task | None:
    """The same task with a spoilt copy of one of its outputs; None where they are too short to be spoilt."""
    said = {candidate.text for candidate in task.candidates}
    for place in rng.sample(task.outputs, len(task.outputs)):
        text = damaged(task.candidates[place].text, rng)
        if text is not None and text not in said:
            copy = Candidate(text=text, role="damaged", original=place)
            return task.model_copy(update={"candidates": (*task.candidates, copy)})
    return None


def damaged(text: str, rng: Random) -> str | None:
    """A text that nobody who reads it takes for good: a third of it is gone, the rest stands in another order."""
    words = text.split()
    parts, joint = (words, " ") if len(words) >= FEW else (list(text.strip()), "")
    for _ in range(TRIES):
        kept = rng.sample(parts, max(1, len(parts) - max(1, len(parts) // 3))) if len(parts) > 1 else []
        spoilt = joint.join(kept).strip()
        if spoilt and spoilt not in text:
            return spoilt
    return None
