"""Are alignments judged and joined as others do it? Every reference output of a folder is scored and made again.

    python benchmarks/links.py FOLDER   # en-fr.gold.align.gz and en-fr.{fastalign,giza}.{forward,reverse,...}.gz

The folder is that of the published outputs of two aligners for 447 sentence pairs (HLT-NAACL 2003, English-French).
Only numbers are kept: AER, precision and recall of each output, and in how many sentences our joining of its two
directions gives the links of the published file.
"""

from __future__ import annotations

import argparse
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

from seqloom.metrics.links import SYMMETRISATIONS, Gold, Judged, Links, read_gold, read_links, turned

RESULT = Path(__file__).parent / "results" / "links.json"


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def output(folder: Path, name: str) -> list[Links]:
    """The links of one file, all of them written source first."""
    path = folder / f"en-fr.{name}.gz"
    links = [read_links(line, f"{path}:{number}") for number, line in enumerate(lines(path), start=1)]
    return [turned(one) for one in links] if name.endswith(".reverse") else links


def judged(links: list[Links], gold: list[Gold]) -> dict[str, float]:
    total = Judged.total(Judged.of(*pair) for pair in zip(links, gold, strict=True))
    return {name: round(100 * getattr(total, name), 2) for name in ("aer", "precision", "recall")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="the published outputs: en-fr.gold.align.gz and those of aligners")
    folder: Path = options.parse_args().folder
    path = folder / "en-fr.gold.align.gz"
    if not path.is_file():
        options.error(f"{path}: no such file")
    gold = [read_gold(line, f"{path}:{number}") for number, line in enumerate(lines(path), start=1)]
    outputs: dict[str, dict[str, float]] = {}
    for aligner in ("fastalign", "giza"):
        directions = [output(folder, f"{aligner}.{name}") for name in ("forward", "reverse")]
        for name, links in zip(("forward", "reverse"), directions, strict=True):
            outputs[f"{aligner} {name}"] = judged(links, gold)
        for name, join in SYMMETRISATIONS.items():
            published = output(folder, f"{aligner}.{name}")
            ours = [join(*both) for both in zip(*directions, strict=True)]
            same = sum(one == other for one, other in zip(ours, published, strict=True))
            outputs[f"{aligner} {name}"] = {**judged(published, gold), "sentences joined alike": same}
    result = {"date": datetime.now(UTC).date().isoformat(), "sentences": len(gold), "outputs": outputs}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
