"""Divide CMUdict's dev set: most of it trains too, as in the papers, and 2,000 of its words stay held out.

python recipes/cmudict.py FOLDER   # reads train.tsv.gz and dev.tsv.gz there, writes more.tsv.gz and held.tsv.gz

Held out is every second word that does not stand in train, until there are enough. As in the README's table:

python recipes/measure.py recipes/pronunciation-large.yaml:1-5 --ensemble --set data.dev=FOLDER/held.tsv.gz \\
    --set "data.train=[FOLDER/train.tsv.gz,FOLDER/more.tsv.gz]" --set data.test=FOLDER/test.tsv.gz
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

HELD = 2_000


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()


def word(line: str) -> str:
    return line.split("\t")[0]


def divided(folder: Path) -> None:
    known, dev = set(map(word, lines(folder / "train.tsv.gz"))), lines(folder / "dev.tsv.gz")
    held = set([line for line in dev if word(line) not in known][::2][:HELD])
    for name, keeps in {"held": True, "more": False}.items():
        with gzip.open(folder / f"{name}.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines(line for line in dev if (line in held) == keeps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    divided(parser.parse_args().folder)


if __name__ == "__main__":
    main()
