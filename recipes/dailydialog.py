"""Lay DailyDialog out as replies: what was said before, a tab, and what was answered; or as dialogues with emotions.

python recipes/dailydialog.py FOLDER OUT   # reads {train,dev}.tsv.gz of FOLDER, writes {train,dev,test}.tsv.gz to OUT
python recipes/dailydialog.py FOLDER OUT --emotions   # whole dialogues, and all emotions that occur in them, or none

Utterances of a line are joined by " __eou__ ". Before a reply stand at most the last two of them. The set's own dev
part is the test set here; dev are 500 dialogues of its train part. A dialogue that stands in several parts, or several
times in one, is kept once, in the part that is judged: letters and digits are compared, so that spaces hide none.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

END = " __eou__ "
BEFORE = 2  # utterances
DEV = 500  # dialogues


EMOTIONS = ("", "anger", "disgust", "fear", "happiness", "sadness", "surprise")  # as the set numbers them


@dataclass(frozen=True)
class Dialogue:
    """What was said, and the number of each utterance's emotion."""

    said: tuple[str, ...]
    emotions: tuple[int, ...]

    @property
    def key(self) -> str:
        return "".join(letter for letter in "".join(self.said).lower() if letter.isalnum())


def dialogues(path: Path) -> list[Dialogue]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        columns = [line.rstrip("\n").split("\t") for line in file]
    return [
        Dialogue(tuple(" ".join(one.split()) for one in said.split(END)), tuple(map(int, emotions.split())))
        for said, _, emotions in columns
    ]


def felt(dialogue: Dialogue) -> list[str]:
    """The dialogue, and the emotions that occur in it."""
    names = sorted({EMOTIONS[number] for number in dialogue.emotions if number})
    return [f"{END.join(one for one in dialogue.said if one)}\t{';'.join(names)}\n"]


def pairs(dialogue: Dialogue) -> list[str]:
    said = [utterance for utterance in dialogue.said if utterance]
    return [f"{END.join(said[max(0, i - BEFORE) : i])}\t{said[i]}\n" for i in range(1, len(said))]


def laid_out(folder: Path, out: Path, lines_of: Callable[[Dialogue], list[str]]) -> None:
    given = {"test": dialogues(folder / "dev.tsv.gz"), "train": dialogues(folder / "train.tsv.gz")}
    seen: set[str] = set()
    kept: dict[str, list[Dialogue]] = {}
    for part, found in given.items():
        kept[part] = [one for one in found if not (one.key in seen or seen.add(one.key))]  # type: ignore[func-returns-value]
    kept["dev"], kept["train"] = kept["train"][:DEV], kept["train"][DEV:]
    out.mkdir(parents=True, exist_ok=True)
    for part, found in kept.items():
        lines = [line for dialogue in found for line in lines_of(dialogue)]
        with gzip.open(out / f"{part}.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines(lines)
        print(f"{part}: {len(found):,} dialogues, {len(lines):,} examples")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--emotions", action="store_true", help="whole dialogues, and the emotions that occur in them")
    arguments = parser.parse_args()
    laid_out(arguments.folder, arguments.out, felt if arguments.emotions else pairs)


if __name__ == "__main__":
    main()
