"""Write stories with questions: one fact, two supporting facts, counting, and negation. Everything is made up here.

python recipes/stories.py OUT              # writes {train,dev,test}.tsv to OUT: story, answer, question, kind
python recipes/stories.py OUT --facts      # only questions whose answer stands in the story, word for word
python recipes/stories.py OUT --seed 2 --count 5000

A story is a few sentences about people, places and things; later sentences may undo earlier ones, so that the last
that matters must be found. No story of the test set stands in train or dev.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PEOPLE = ["anna", "bruno", "clara", "david", "elena", "felix", "greta", "hugo"]
PLACES = ["garden", "kitchen", "hall", "office", "barn", "attic", "cellar", "library"]
THINGS = ["apple", "lamp", "book", "key", "basket", "rope"]
GOES = ("went to", "walked to", "moved to", "ran to")
NUMBERS = ("none", "one", "two", "three", "four", "five", "six")
KINDS = ("fact", "two facts", "counting", "negation")
IN_THE_STORY = ("fact", "two facts")  # kinds whose answer is a word of the story


@dataclass
class World:
    """What is true so far, and the sentences that told it."""

    draw: random.Random
    at: dict[str, str] = field(default_factory=dict)  # person -> place
    not_at: dict[str, str] = field(default_factory=dict)  # person -> a place where they are said not to be
    holds: dict[str, list[str]] = field(default_factory=dict)  # person -> things
    lies: dict[str, str] = field(default_factory=dict)  # thing -> place, where somebody left it
    told: list[str] = field(default_factory=list)

    def go(self) -> None:
        person, place = self.draw.choice(PEOPLE), self.draw.choice(PLACES)
        self.at[person] = place
        self.not_at.pop(person, None)
        self.told.append(f"{person} {self.draw.choice(GOES)} the {place} .")

    def leave(self) -> None:
        """Somebody is no longer where they were; where they are instead nobody says."""
        person = self.draw.choice(PEOPLE)
        place = self.at.pop(person, None) or self.draw.choice(PLACES)
        self.not_at[person] = place
        self.told.append(f"{person} is no longer in the {place} .")

    def take(self) -> None:
        free = [thing for thing in THINGS if not any(thing in own for own in self.holds.values())]
        if not free:
            return self.drop()
        person, thing = self.draw.choice(PEOPLE), self.draw.choice(free)
        self.holds.setdefault(person, []).append(thing)
        self.lies.pop(thing, None)
        self.told.append(f"{person} took the {thing} .")
        return None

    def drop(self) -> None:
        owners = [person for person, own in self.holds.items() if own and person in self.at]
        if not owners:
            return self.go()
        person = self.draw.choice(owners)
        thing = self.holds[person].pop()
        self.lies[thing] = self.at[person]
        self.told.append(f"{person} put down the {thing} .")
        return None


def fact(world: World) -> Iterator[tuple[str, str]]:
    for person, place in world.at.items():
        yield f"where is {person} ?", place


def two_facts(world: World) -> Iterator[tuple[str, str]]:
    """Who has it, and where they are; or who put it down, and where they were then."""
    for person, own in world.holds.items():
        for thing in own:
            if person in world.at:
                yield f"where is the {thing} ?", world.at[person]
    for thing, place in world.lies.items():
        yield f"where is the {thing} ?", place


def counting(world: World) -> Iterator[tuple[str, str]]:
    for person, own in world.holds.items():
        yield f"how many things does {person} have ?", NUMBERS[len(own)]


def negation(world: World) -> Iterator[tuple[str, str]]:
    for person, place in world.at.items():
        other = world.draw.choice([one for one in PLACES if one != place])
        yield f"is {person} in the {place} ?", "yes"
        yield f"is {person} in the {other} ?", "no"
    for person, place in world.not_at.items():
        yield f"is {person} in the {place} ?", "no"


QUESTIONS: dict[str, Callable[[World], Iterator[tuple[str, str]]]] = dict(
    zip(KINDS, (fact, two_facts, counting, negation), strict=True)
)


def story(draw: random.Random, kind: str) -> tuple[str, str, str] | None:
    """(story, answer, question) of this kind; None where the story that was drawn has no such question."""
    world = World(draw)
    steps = [world.go, world.go, world.take, world.drop, *([world.leave] if kind == "negation" else [])]
    for _ in range(draw.randint(4, 10)):
        draw.choice(steps)()
    asked = [*QUESTIONS[kind](world)]
    if not asked:
        return None
    question, answer = draw.choice(asked)
    return " ".join(world.told), answer, question


def stories(count: int, kinds: tuple[str, ...], seed: int, known: set[str]) -> list[str]:
    """So many lines, kinds in equal shares, no story twice and none that is known already."""
    draw = random.Random(seed)
    lines: list[str] = []
    while len(lines) < count:
        kind = kinds[len(lines) % len(kinds)]
        found = story(draw, kind)
        if found is not None and found[0] not in known:
            known.add(found[0])
            lines.append("\t".join([*found, kind]) + "\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--facts", action="store_true", help="only answers that stand in the story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000, help="of train; dev and test have a tenth each")
    given = parser.parse_args()
    kinds = IN_THE_STORY if given.facts else KINDS
    given.out.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for number, (part, count) in enumerate(
        {"test": given.count // 10, "dev": given.count // 10, "train": given.count}.items()
    ):
        lines = stories(count, kinds, 1000 * given.seed + number, known)
        (given.out / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
        print(f"{part}: {len(lines):,} stories")


if __name__ == "__main__":
    main()
