"""`seqloom align`: a model that learned to turn sentences round, and says which word came from which."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from commands import Command
from seqloom import train
from seqloom.cli.align import JOINS
from seqloom.metrics.links import SYMMETRISATIONS

pytest_plugins = ["command_fixtures"]

WORDS = {f"{a}{b}": f"{b}{a}{a}" for a in "abcd" for b in "uvwx"}  # each of 16 words has one translation
RECIPE = """
languages: {{source: en, target: ne}}
data: {{train: "{folder}/{name}.tsv", split: {{dev: 0.05, test: 0.05}}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 24}}
  target_embedding: {{width: 24}}
  encoder: {{width: 48, dropout: 0}}
  decoder: {{kind: luong, width: 48, dropout: 0}}
batching: {{tokens: 256}}
training: {{steps: 350, validate_every: 350, optimiser: {{kind: adam, lr: 0.01}}, schedule: {{kind: cosine}}}}
evaluation: {{metrics: [exact], validate_examples: 10}}
runtime: {{device: cpu, threads: 1, precision: float32}}
"""


def sentences(count: int, seed: int) -> list[tuple[str, str, str]]:
    """(source, target, links): the words translated, in the opposite order."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        source = rng.sample(sorted(WORDS), rng.randint(2, 6))
        links = " ".join(f"{i}-{len(source) - 1 - i}" for i in range(len(source)))
        rows.append((" ".join(source), " ".join(WORDS[word] for word in reversed(source)), links))
    return rows


@cache
def directions() -> tuple[Path, Path]:
    """Two runs, there and back, trained once."""
    folder = Path(mkdtemp(prefix="seqloom-align-"))
    rows = sentences(1500, seed=1)
    (folder / "there.tsv").write_text("".join(f"{source}\t{target}\n" for source, target, _ in rows))
    (folder / "back.tsv").write_text("".join(f"{target}\t{source}\n" for source, target, _ in rows))
    runs = []
    for name in ("there", "back"):
        recipe = folder / f"{name}.yaml"
        recipe.write_text(RECIPE.format(folder=folder, name=name))
        runs.append(train(recipe, folder / f"run-{name}").folder)
    return runs[0], runs[1]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """60 new sentence pairs with gold links beside them."""
    rows = sentences(60, seed=2)
    (tmp_path / "gold").write_text("".join(f"{links}\n" for _, _, links in rows))
    path = tmp_path / "new.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target, _ in rows))
    return path


def test_links_are_printed_and_judged(seqloom: Command, pairs: Path) -> None:
    there, back = directions()
    gold = pairs.with_name("gold")
    said = seqloom("align", there, pairs, "--gold", gold, "--json")
    assert said.code == 0, said
    *lines, scores = map(json.loads, said.out.splitlines())
    assert len(lines) == 60
    assert set(map(tuple, lines[0]["links"])) <= {(i, j) for i in range(6) for j in range(6)}
    assert scores["pairs"] == 60
    assert scores["aer"] < 0.15, scores

    both = seqloom("align", there, pairs, "--reverse", back, "--gold", gold, "--json")
    joined = json.loads(both.out.splitlines()[-1])
    assert joined["precision"] >= scores["precision"], (joined, scores)
    assert joined["aer"] <= scores["aer"] + 0.02, (joined, scores)


def test_plain_output_is_what_gold_files_hold(seqloom: Command, pairs: Path, tmp_path: Path) -> None:
    """Links against themselves have no errors; stdin and parallel files give the same."""
    there, _ = directions()
    plain = seqloom("align", there, pairs)
    assert plain.code == 0
    (tmp_path / "own").write_text(plain.out)
    again = seqloom("align", there, pairs, "--gold", tmp_path / "own")
    assert again.out == plain.out
    assert "AER 0.0 %, precision 100.0 %, recall 100.0 %" in again.err
    rows = [line.split("\t") for line in pairs.read_text().splitlines()]
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{row[side]}\n" for row in rows))
    parallel = seqloom("align", there, "--source", tmp_path / "source", "--target", tmp_path / "target")
    assert parallel.out == plain.out


def test_part_of_the_gold_links_chooses_whose_weights_are_read(seqloom: Command, pairs: Path) -> None:
    there, back = directions()
    said = seqloom("align", there, pairs, "--reverse", back, "--gold", pairs.with_name("gold"), "--tune", 20)
    assert said.code == 0, said
    assert len(said.out.splitlines()) == 60
    assert "weights chosen on the first 20 pairs: layer 1, mean of the heads; the other direction: " in said.err
    assert "40 pairs: AER" in said.err


def test_help_names_every_way_to_join() -> None:
    assert tuple(SYMMETRISATIONS) == JOINS


def test_what_cannot_be_aligned_is_said(seqloom: Command, pairs: Path, tmp_path: Path) -> None:
    there, _ = directions()
    gold = pairs.with_name("gold")
    short = tmp_path / "short"
    short.write_text("0-0\n")
    assert "60 pair(s), but 1 line(s)" in seqloom("align", there, pairs, "--gold", short).refused("E_ALIGN", 3)
    lines = gold.read_text().splitlines()
    short.write_text("\n".join([*lines[:-1], f"{lines[-1]} 6p0"]))
    assert "gold link 6-0: the source has" in seqloom("align", there, pairs, "--gold", short).refused("E_DATA", 3)
    short.write_text("0-0 one-two\n")
    assert "short:1" in seqloom("align", there, pairs, "--gold", short).refused("E_DATA", 3)
    assert "--gold FILE" in seqloom("align", there, pairs, "--tune", 3).refused("E_USAGE", 2)
    seqloom("align", there, pairs, "--tune", 3, "--gold", gold, "--layer", 1).refused("E_USAGE", 2)
    seqloom("align", there, pairs, "--tune", 60, "--gold", gold).refused("E_USAGE", 2)
    assert "layers 1 to 1" in seqloom("align", there, pairs, "--layer", 2).refused("E_USAGE", 2)
    assert "heads 1 to 1" in seqloom("align", there, pairs, "--head", 2).refused("E_USAGE", 2)
    assert "grow-diagonal" in seqloom("align", there, pairs, "--join", "grow").refused("E_USAGE", 2)
    short.write_text("")
    seqloom("align", there, short).refused("E_EMPTY", 3)
    blind = train(there.parent / "there.yaml", tmp_path / "blind", ["model.decoder.kind=rnn", "training.steps=1"])
    assert "no attention" in seqloom("align", blind.folder, pairs).refused("E_USAGE", 2)
