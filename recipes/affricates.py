"""Write affricates one way: `t ʃ` becomes `t͡ʃ` wherever a pronunciation file itself mostly ties the two.

python recipes/affricates.py TRAIN.tsv.gz OUT.tsv.gz   # WORD<TAB>phonemes, blank-separated; for training alone

Hand-made dictionaries mix both ways, and with a few hundred words a model learns the mixture by heart. Dev and test
stay as they are.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from pathlib import Path

TIE = "\N{COMBINING DOUBLE INVERTED BREVE}"


def main(source: Path, target: Path) -> None:
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    symbols = Counter(symbol for _, said in rows for symbol in said.split())
    for tied, often in symbols.items():
        loose = tied.replace(TIE, " ")
        apart = re.compile(rf"(?<!\S){re.escape(loose)}(?!\S)")
        found = sum(len(apart.findall(said)) for _, said in rows) if TIE in tied else 0
        if 0 < found < often:
            rows = [[word, apart.sub(tied, said)] for word, said in rows]
            print(f"{loose} -> {tied}: {found} times, {often} were tied")
    with gzip.open(target, "wt", encoding="utf-8") as file:
        file.writelines(f"{word}\t{said}\n" for word, said in rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
