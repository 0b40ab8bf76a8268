"""Cross-validation of a recipe: no line is lost, no source stands in two folds, who answers a line has not seen it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import folds  # type: ignore[import-not-found]

LINES = [f"{word}\t{' '.join(word)}" for word in ("loom", "weft", "warp", "reed", "heald", "pick", "shed", "bobbin")]
LINES += ["loom\tl uu m", "reed\tr ii d"]  # said in two ways
RECIPE = """
data: {train: train.tsv, dev: dev.tsv}
source: {tokenizer: characters}
target: {tokenizer: symbols}
model:
  source_embedding: {width: 4}
  target_embedding: {width: 4}
  encoder: {kind: rnn, width: 4}
  decoder: {kind: rnn, width: 4}
training: {steps: 2}
evaluation: {metrics: [string_error], merge_sources: true}
"""


def test_lines_are_dealt_by_their_source() -> None:
    shares = folds.dealt(LINES, 3)
    assert sorted(line for share in shares for line in share) == sorted(LINES)
    sources = [{line.split("\t")[0] for line in share} for share in shares]
    assert sum(map(len, sources)) == len(set.union(*sources)), "no source stands in two folds"
    assert max(map(len, sources)) - min(map(len, sources)) <= 1
    assert shares == folds.dealt(LINES, 3) != folds.dealt(LINES, 2)
    assert [sorted(share) for share in folds.dealt(LINES[::-1], 3)] == [sorted(share) for share in shares]


def test_a_recipe_is_judged_on_what_its_runs_did_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"train.tsv": LINES[:7], "dev.tsv": LINES[7:]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.setattr(sys, "argv", ["folds.py", "recipe.yaml", "--folds", "2", "--seeds", "1-2", "--run", "judged"])
    folds.main()
    told = json.loads(capsys.readouterr().out)
    assert [set(run) for run in told["runs"]] == [{"nll", "string_error"}] * 3, "each seed, and both as one model"
    for fold in (tmp_path / "judged").iterdir():
        held, known = ((fold / f"{name}.tsv").read_text().splitlines() for name in ("held", "train"))
        assert sorted(held + known) == sorted(LINES)
        assert not {line.split("\t")[0] for line in held} & {line.split("\t")[0] for line in known}
