"""Lay DailyDialog out as replies: what was said before, a tab, and what was answered.

python recipes/dailydialog.py FOLDER OUT   # reads {train,dev}.tsv.gz of FOLDER, writes {train,dev,test}.tsv.gz to OUT

Utterances of a line are joined by " __eou__ ". Before a reply stand at most the last two of them. The set's own dev
part is the test set here; dev are 500 dialogues of its train part. A dialogue that stands in several parts, or several
times in one, is kept once, in the part that is judged: letters and digits are compared, so that spaces hide none.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

END = " __eou__ "
BEFORE = 2  # utterances
DEV = 500  # dialogues


def dialogues(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [[" ".join(one.split()) for one in line.split("\t")[0].split(END)] for line in file]


def key(dialogue: list[str]) -> str:
    return "".join(letter for letter in "".join(dialogue).lower() if letter.isalnum())


def pairs(dialogue: list[str]) -> list[str]:
    said = [utterance for utterance in dialogue if utterance]
    return [f"{END.join(said[max(0, i - BEFORE) : i])}\t{said[i]}\n" for i in range(1, len(said))]


def main(folder: Path, out: Path) -> None:
    given = {"test": dialogues(folder / "dev.tsv.gz"), "train": dialogues(folder / "train.tsv.gz")}
    seen: set[str] = set()
    kept: dict[str, list[list[str]]] = {}
    for part, found in given.items():
        kept[part] = [one for one in found if not (key(one) in seen or seen.add(key(one)))]  # type: ignore[func-returns-value]
    kept["dev"], kept["train"] = kept["train"][:DEV], kept["train"][DEV:]
    out.mkdir(parents=True, exist_ok=True)
    for part, found in kept.items():
        lines = [line for dialogue in found for line in pairs(dialogue)]
        with gzip.open(out / f"{part}.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines(lines)
        print(f"{part}: {len(found):,} dialogues, {len(lines):,} replies")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
