"""Judge a run that says placeholders (restaurants-delexicalised): names are filled in, then whole sentences are judged.

python recipes/delexicalised.py RUN TEST            # TEST: delexicalised_test.tsv.gz; scores on stdout, as JSON
python recipes/delexicalised.py RUN TEST --into recipes/results/restaurants-delexicalised.json

Each restaurant is decoded once and judged by all sentences about it, names and all, by the metrics of the recipe.
`--into` puts these scores into what `recipes/measure.py` wrote of the run, and keeps those of placeholders beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqloom.api.evaluate import Judge
from seqloom.api.load import load
from seqloom.api.public.derived import PLACEHOLDERS, filled
from seqloom.api.public.upstream import lines_of
from seqloom.data.readers import Example


@dataclass
class Restaurant:
    """A record with placeholders, what they stand for, and the sentences about it with the names filled in."""

    record: str
    values: Mapping[str, str]
    sentences: list[str] = field(default_factory=list)


def restaurants(lines: Iterable[str]) -> list[Restaurant]:
    """One for every record with its names, in order of sight; the first line names the columns."""
    known: dict[tuple[str, ...], Restaurant] = {}
    for line in [*lines][1:]:
        record, sentence, *names = line.split("\t")
        values = dict(zip(PLACEHOLDERS, names, strict=True))
        one = known.setdefault((record, *names), Restaurant(record, values))
        one.sentences.append(filled(sentence, values))
    return [*known.values()]


def judged(run: Path, test: Path) -> dict[str, dict[str, object]]:
    model, wanted = load(run), restaurants(lines_of(test))
    said = [prediction.text for prediction in model.predict([one.record for one in wanted])]
    return scores(Judge(model), wanted, said)


def scores(judge: Judge, wanted: Sequence[Restaurant], said: Sequence[str]) -> dict[str, dict[str, object]]:
    outputs = [filled(text, one.values) for text, one in zip(said, wanted, strict=True)]
    examples = [
        Example(filled(one.record, one.values), tuple(dict.fromkeys(one.sentences)), "test", line)
        for line, one in enumerate(wanted, start=1)
    ]
    return {
        kind: score.written("names:filled") for kind, score in judge.outputs("filled", outputs, examples).scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--into", type=Path, default=None)
    arguments = parser.parse_args()
    found = judged(arguments.run, arguments.test)
    print(json.dumps(found, indent=1))
    if arguments.into is not None:
        result = json.loads(arguments.into.read_text())
        result.setdefault("scores_of_placeholders", result["scores"])
        arguments.into.write_text(json.dumps({**result, "scores": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
