"""The transcript of two real clients in docs/howto/serve.md, typed again into a real server."""

from __future__ import annotations

import doctest
from pathlib import Path

from seqloom.api.train import train
from seqloom.serve.limits import Limits
from serving import serving

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "serve.md"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RECIPE = """
languages: {{source: de, target: en}}
data: {{train: {data}}}
source: {{tokenizer: characters}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 32}}
  target_embedding: {{width: 32}}
  encoder: {{kind: rnn, cell: gru, width: 48}}
  decoder: {{kind: bahdanau, cell: gru, width: 48}}
batching: {{tokens: 512}}
training: {{steps: 300, optimiser: {{kind: adam, lr: 5e-3}}}}
runtime: {{threads: 1, device: cpu}}
"""


def test_the_transcript_of_the_clients_is_what_they_are_told(tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    numbers = [str(number) for number in range(1000, 4000, 2)]
    data.write_text("".join(f"{one}\t{' '.join(WORDS[int(digit)] for digit in one)}\n" for one in numbers))
    (tmp_path / "numbers.yaml").write_text(RECIPE.format(data=data))
    run = train(tmp_path / "numbers.yaml", tmp_path / "numbers").folder
    with serving(run, limits=Limits(rate="none")) as (client, _):
        text = PAGE.read_text(encoding="utf-8").replace("http://localhost:5000", str(client.base_url).rstrip("/"))
        examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, PAGE.name, str(PAGE), 0)
        assert len(examples.examples) >= 8
        report: list[str] = []
        flags = doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
        failed = doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append).failed
    assert failed == 0, "".join(report)
