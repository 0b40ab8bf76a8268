"""Language models through the command line: lines and one long text, completion, scores, preferences, bad input."""

from __future__ import annotations

import json
import random
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from commands import Command

pytest_plugins = ["command_fixtures"]

LINES = """
data: {{train: {{kind: text, path: {train}}}, dev: {{kind: text, path: {dev}}}, test: {{kind: text, path: {dev}}}}}
target: {{tokenizer: words}}
model: {{kind: language, embedding: {{width: 32}}, decoder: {{kind: {kind}, width: 32}}}}
batching: {{tokens: 256}}
training: {{steps: 250, optimiser: {{kind: adam, lr: 1e-2}}}}
"""
STREAM = """
data:
  train: {{path: {train}, unit: stream}}
  dev: {{path: {dev}, unit: stream}}
  test: {{path: {dev}, unit: stream}}
target: {{tokenizer: characters}}
model: {{kind: language, embedding: {{width: 16}}, decoder: {{kind: {kind}, width: 48}}}}
batching: {{tokens: 512, window: 32}}
training: {{steps: 150, optimiser: {{kind: adam, lr: 1e-2}}}}
search: {{strategy: greedy, limits: {{extra: 30}}}}
"""


def sentence(rng: random.Random) -> str:
    """Subject and verb agree, however many words stand between them: `the dogs near the cat sleep`."""
    number = rng.choice(["", "s"])
    between = " ".join(f"near the {rng.choice(['cat', 'cats', 'dog', 'dogs'])}" for _ in range(rng.randrange(3)))
    return " ".join(f"the dog{number} {between} sleep{'' if number else 's'}".split())


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(1)
    for name, count in (("train", 1500), ("dev", 100)):
        (folder / f"{name}.txt").write_text("".join(sentence(rng) + "\n" for _ in range(count)))
    return folder


def trained(seqloom: Command, texts: Path, form: str, kind: str, folder: Path) -> Path:
    recipe = folder / "recipe.yaml"
    recipe.write_text(form.format(train=texts / "train.txt", dev=texts / "dev.txt", kind=kind))
    answer = seqloom("train", recipe, "--run", folder / "run")
    assert answer.code == 0, answer.err
    return folder / "run"


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_a_model_of_lines_learns_agreement(
    kind: str, monkeypatch: pytest.MonkeyPatch, seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    run = trained(seqloom, texts, LINES, kind, tmp_path)
    measured = json.loads(seqloom("evaluate", run, "--ngrams", "2", "--json").out)
    assert measured["texts"] == 100
    assert measured["ngrams"]["tokens"] == measured["tokens"]
    assert measured["ngrams"]["nll"] > measured["nll"], "two words do not know how many dogs there are"
    assert measured["word_perplexity"] == pytest.approx(measured["perplexity"]), "a word is a token, ends included"
    assert measured["perplexity"] < 2.2
    bad = [("the dogs sleep", "the dogs sleeps", 0), ("the dog near the cats sleeps", "the dog near the cats sleep", 3)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{good}\t{wrong}\t{far}\n" for good, wrong, far in bad))
    asked = seqloom("evaluate", run, "--contrast", tmp_path / "pairs.tsv", "--last-word", "--json")
    found = {one["group"]: one for one in json.loads(asked.out)["preferences"]}
    assert found["all"]["right"] == 2
    assert list(found) == ["all", "0", "3", "last word"]
    assert 30 < found["last word"]["accuracy"] < 90, "after two words between, the verb is certain; before, it is not"
    said = seqloom("predict", run, "--text", "the dogs near the cat near the cat", "--greedy")
    assert said.out.strip() == "the dogs near the cat near the cat sleep"
    begun = seqloom("predict", run, "--prefix", "the dogs near", "--greedy")
    assert begun.out.startswith("the dogs near "), "a prefix alone is enough"
    made = seqloom("predict", run, "--text", "", "--sample", "--seed", "3")
    assert made.out.startswith("the dog")
    assert seqloom("predict", run, "--text", "", "--sample", "--seed", "3").out == made.out
    told = seqloom("explain", run, "the dogs near the cat", "--target", "sleep")
    assert told.code == 0, told.err
    assert "sleep" in told.out
    assert seqloom("explain", run, "").code == 0, "from nothing on"
    for look in (["--attribute", "gradient"], ["--attribute", "integrated"], ["--attribute", "occlusion"]):
        owed = seqloom("explain", run, "", "--target", "the dogs sleep", *look)
        assert owed.code == 0, owed.err
        assert "and to what had been said before it" in owed.out
    surprise = seqloom("explain", run, "", "--target", "the dogs near the cat sleep", "--words").out
    bits = {
        line.split()[1]: float(line.split()[-1]) for line in surprise.splitlines() if line.split()[:1] in (["2"], ["6"])
    }
    assert bits["dogs"] > bits["sleep"] >= 0, "which of four it is nobody knows before, its verb nearly"
    near = seqloom("explain", run, "the dogs sleep", "--neighbours", "1").out.splitlines()
    assert near[1].split() == ["0.0000", "the", "dogs", "sleep"], "texts are told by the state in which they end"
    points = json.loads(seqloom("explain", run, "--states", "--json").out)["states"]["points"]
    assert len(points) == 100
    assert points[0]["text"].startswith("the dog")
    assert "90 %" in seqloom("explain", run, "--depth").out
    assert "language model" in seqloom("compare", run, run).refused("E_USAGE", 2)
    scored = seqloom("score", run, texts / "dev.txt")
    assert len(scored.out.splitlines()) == 100
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO((texts / "dev.txt").read_bytes())))
    assert seqloom("score", run).out == scored.out, "a language model reads texts, one on each line"
    assert "100 pairs" in scored.err


def test_one_long_text_is_read_in_windows(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    run = trained(seqloom, texts, STREAM, "rnn", tmp_path)
    measured = json.loads(seqloom("evaluate", run, "--json").out)
    assert measured["tokens"] == measured["characters"] == len((texts / "dev.txt").read_text())
    assert measured["bits_per_character"] < 1
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validated = [line["values"]["nll"] for line in logged if "values" in line]
    assert measured["nll"] == pytest.approx(min(validated), abs=1e-4), "what training saw"
    assert seqloom("predict", run, "--text", "the d").out.startswith("the dog")
    again = seqloom("train", tmp_path / "recipe.yaml", "--run", run)
    assert again.code == 0
    assert "finished already" in again.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window: 32": "window: 1"}, "batching.window"),
        ({"window: 32": "window: 100000"}, "do not fill a window of 100,000"),
        ({", window: 32": ""}, "set batching.window"),
        ({"tokens: 512": "tokens: auto"}, "auto is not for windows"),
        ({"training:": "task: {r_drop: 1}\ntraining:"}, "task.r_drop: it needs whole texts"),
        ({"kind: language, embedding": "kind: joint, embedding"}, "only a language model reads a text in windows"),
        ({"kind: rnn": "kind: luong"}, "model.decoder"),
    ],
)
def test_what_does_not_fit_is_said(
    change: dict[str, str], said: str, seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    text = STREAM.format(train=texts / "train.txt", dev=texts / "dev.txt", kind="rnn")
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "recipe.yaml").write_text(text)
    answer = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run")
    assert answer.code in (2, 3), answer.err
    assert said in answer.err


def test_a_stream_is_not_split_by_lines(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    text = STREAM.format(train=texts / "train.txt", dev=texts / "dev.txt", kind="rnn")
    text = text.replace(f"  dev: {{path: {texts / 'dev.txt'}, unit: stream}}\n", "", 1)
    (tmp_path / "recipe.yaml").write_text(text)
    assert "cannot be held out one by one" in seqloom("train", tmp_path / "recipe.yaml").refused("E_RECIPE", 2)


@pytest.mark.parametrize(("content", "code"), [("only one column\n", "E_DATA"), ("", "E_EMPTY"), ("a\t\n", "E_DATA")])
def test_bad_contrasts(content: str, code: str, seqloom: Command, texts: Path, tmp_path: Path) -> None:
    run = trained(seqloom, texts, LINES.replace("steps: 250", "steps: 2"), "rnn", tmp_path)
    (tmp_path / "pairs.tsv").write_text(content)
    seqloom("evaluate", run, "--contrast", tmp_path / "pairs.tsv").refused(code, 3)
    assert "perplexity 1000" not in seqloom("evaluate", run, "--fail-under", "perplexity=1").refused("E_QUALITY", 7)
    seqloom("evaluate", run, "--fail-under", "bleu=1").refused("E_USAGE", 2)


PAIRS = """
data: {{train: {train}, dev: {train}, test: {train}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 8}}
  target_embedding: {{width: 8}}
  encoder: {{width: 8}}
  decoder: {{kind: luong, width: 8}}
training: {{steps: 2}}
"""


def test_a_language_model_advises_a_translation(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    """A model that has learned next to nothing, told by one that knows what sentences look like."""
    lines = (texts / "train.txt").read_text().splitlines()[:300]
    (tmp_path / "pairs.tsv").write_text("".join(f"x {line}\t{line}\n" for line in lines))
    (tmp_path / "pairs.yaml").write_text(PAIRS.format(train=tmp_path / "pairs.tsv"))
    assert seqloom("train", tmp_path / "pairs.yaml", "--run", tmp_path / "weak", "--no-report").code == 0
    (tmp_path / "lm.yaml").write_text(LINES.format(train=texts / "train.txt", dev=texts / "dev.txt", kind="rnn"))
    other = seqloom("train", tmp_path / "lm.yaml", "--run", tmp_path / "other", "--set", "training.steps=2")
    assert other.code == 0, other.err
    ask = ["predict", tmp_path / "weak", "-t", "x the dog sleeps", "--beam", "4", "--fuse-weight", "5", "--fuse"]
    assert f"--tokens-of {'weak'}" in seqloom(*ask, tmp_path / "other").refused("E_BUNDLE", 4)
    taken = seqloom("train", tmp_path / "lm.yaml", "--run", tmp_path / "lm", "--tokens-of", tmp_path / "weak")
    assert taken.code == 0, taken.err
    assert seqloom(*ask, tmp_path / "lm").out.startswith("the dog")
    line = seqloom("train", tmp_path / "pairs.yaml", "--run", tmp_path / "p", "--tokens-of", tmp_path / "weak")
    assert "only a language model" in line.refused("E_USAGE", 2)
    changed = ["--set", "target.lowercase=true", "--tokens-of", tmp_path / "weak"]
    assert "lowercase" in seqloom("train", tmp_path / "lm.yaml", "--run", tmp_path / "q", *changed).refused(
        "E_RECIPE", 2
    )
