"""An encoder that learned to restore masked words is taken over by another task."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from commands import Command
from seqloom import load
from seqloom.weights import of_model

pytest_plugins = ["command_fixtures"]

MASKED = """
data: {{train: {{kind: text, path: {text}, echo: true}}}}
source: {{tokenizer: symbols}}
target: {{tokenizer: symbols}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: {encoder}, width: 16}}
  decoder: tags
task: {{restore: true, source_noise: {{mask: 0.12, replace: 0.015, keep: 0.015{words}}}}}
batching: {{tokens: 256}}
training: {{steps: {steps}, optimiser: {{kind: adam, lr: 1e-2}}, validate_every: 50}}
evaluation: {{metrics: [accuracy], validate_examples: 0, show: 0}}
"""
LABELS = """
data: {{train: {pairs}}}
source: {{tokenizer: symbols}}
target: {{tokenizer: whole}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: {encoder}, width: 16}}
  decoder: {{kind: label, pooling: mean}}
training: {{steps: 1, optimiser: {{kind: sgd, lr: 1e-8}}{take}}}
evaluation: {{metrics: [accuracy]}}
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every word is followed by its successor in a circle: what is masked can be told from its neighbours."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(1)
    lines = []
    for _ in range(400):
        first = rng.randrange(20)
        lines.append(" ".join(f"w{(first + i) % 20}" for i in range(rng.randrange(4, 9))))
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    labelled = (f"{line}\t{'low' if int(line.split()[0][1:]) < 10 else 'high'}\n" for line in lines)
    (folder / "pairs.tsv").write_text("".join(labelled))
    return folder


def pretrained(seqloom: Command, texts: Path, folder: Path, **chosen: object) -> Path:
    form = {"text": texts / "text.txt", "encoder": "rnn", "words": "", "steps": 4, **chosen}
    (folder / "masked.yaml").write_text(MASKED.format(**form))
    answer = seqloom("train", folder / "masked.yaml", "--run", folder / "masked", "--no-report")
    assert answer.code == 0, answer.err
    return folder / "masked"


def taking(seqloom: Command, texts: Path, folder: Path, take: str, *more: object) -> object:
    form = {"pairs": texts / "pairs.tsv", "encoder": "rnn", "take": f", take: [{take}]" if take else ""}
    (folder / "labels.yaml").write_text(LABELS.format(**form))
    return seqloom("train", folder / "labels.yaml", "--run", folder / "labels", "--no-report", *more)


@pytest.mark.parametrize("words", ["", ", whole_words: true"])
def test_masked_words_are_restored(words: str, seqloom: Command, texts: Path, tmp_path: Path) -> None:
    run = pretrained(seqloom, texts, tmp_path, steps=250, words=words)
    values = load(run).about["validation"]
    assert isinstance(values, dict)
    assert values["perplexity"] < 3, "of twenty words, the one between its neighbours"


def test_whole_words_of_subwords_are_struck(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.txt").write_text("".join(f"{i} some more words to cut\n" for i in range(60)))
    subwords = "{kind: bpe, size: 40}"
    recipe = MASKED.format(text=tmp_path / "cut.txt", encoder="rnn", words=", whole_words: true", steps=3)
    (tmp_path / "masked.yaml").write_text(recipe.replace("tokenizer: symbols", f"tokenizer: {subwords}"))
    answer = seqloom("train", tmp_path / "masked.yaml", "--run", tmp_path / "run", "--no-report")
    assert answer.code == 0, answer.err


def test_words_read_by_their_letters_are_restored_and_rare_ones_not_asked_for(
    seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    rare = "".join(f"only{i} {line}\n" for i, line in enumerate((texts / "text.txt").read_text().splitlines()))
    (tmp_path / "rare.txt").write_text(rare)
    recipe = MASKED.format(text=tmp_path / "rare.txt", encoder="spelled", words=", whole_words: true", steps=200)
    recipe = recipe.replace("source: {tokenizer: symbols}", "source: {tokenizer: characters}")
    recipe = recipe.replace("kind: spelled, width: 16", "kind: spelled, words: {kind: rnn, width: 32}")
    recipe = recipe.replace("target: {tokenizer: symbols}", "target: {tokenizer: symbols, vocabulary: {min_count: 2}}")
    (tmp_path / "masked.yaml").write_text(recipe)
    answer = seqloom("train", tmp_path / "masked.yaml", "--run", tmp_path / "run", "--no-report")
    assert answer.code == 0, answer.err
    assert "unseen" not in answer.err, "texts with rare words are learned from all the same"
    values = load(tmp_path / "run").about["validation"]
    assert isinstance(values, dict)
    assert values["perplexity"] < 6, "of twenty words, the one between its neighbours"


NEXT = "task: {next_word: true}"


def next_word(texts: Path, way: str, steps: int) -> str:
    """The recipe that asks every word for the one behind it."""
    recipe = MASKED.format(text=texts / "text.txt", encoder="rnn", words="", steps=steps)
    task = next(line for line in recipe.splitlines() if line.startswith("task:"))
    return recipe.replace(task, NEXT).replace("kind: rnn, width: 16", f"kind: rnn, width: 16, bidirectional: {way}")


def test_the_next_word_is_learned_by_an_encoder_that_reads_one_way(
    seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    (tmp_path / "next.yaml").write_text(next_word(texts, "false", 200))
    answer = seqloom("train", tmp_path / "next.yaml", "--run", tmp_path / "next", "--no-report")
    assert answer.code == 0, answer.err
    values = load(tmp_path / "next").about["validation"]
    assert isinstance(values, dict)
    assert values["perplexity"] < 1.3, "of twenty words, the one that always follows"
    labels = LABELS.format(pairs=texts / "pairs.tsv", encoder="rnn", take=", take: [encoder, source_embedding]")
    labels = labels.replace("kind: rnn, width: 16", "kind: rnn, width: 16, bidirectional: false")
    (tmp_path / "labels.yaml").write_text(labels)
    answer = seqloom(
        "train", tmp_path / "labels.yaml", "--run", tmp_path / "labels", "--from", tmp_path / "next", "--no-report"
    )
    assert answer.code == 0, answer.err
    assert "taken over: " in answer.err


def test_an_encoder_that_has_seen_the_next_word_is_not_asked_for_it(
    seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    (tmp_path / "next.yaml").write_text(next_word(texts, "true", 2))
    answer = seqloom("train", tmp_path / "next.yaml", "--run", tmp_path / "next", "--no-report")
    assert "bidirectional: false" in answer.refused("E_RECIPE", 2)
    assert not (tmp_path / "next").exists()


def test_an_encoder_is_taken_over(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    run = pretrained(seqloom, texts, tmp_path)
    answer = taking(seqloom, texts, tmp_path, "encoder, source_embedding", "--from", run)
    assert answer.code == 0, answer.err  # type: ignore[attr-defined]
    assert "taken over: " in answer.err  # type: ignore[attr-defined]
    first, second = (of_model(load(folder, packed=False).network) for folder in (run, tmp_path / "labels"))
    for name in (name for name in second if name.startswith(("encoder.", "source_embedding."))):
        torch.testing.assert_close(second[name], first[name], atol=1e-6, rtol=0)
    assert second["decoder.output.weight"].shape[0] == 2


@pytest.mark.parametrize(
    ("take", "start", "code", "said"),
    [
        ("encoder", False, "E_RECIPE", "there is no run to take parts from"),
        ("encodr", True, "E_RECIPE", "did you mean"),
        ("decoder", True, "E_BUNDLE", "decoder.output.weight"),
    ],
)
def test_what_cannot_be_taken(
    take: str, start: bool, code: str, said: str, seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    run = pretrained(seqloom, texts, tmp_path)
    answer = taking(seqloom, texts, tmp_path, take, *(["--from", run] if start else []))
    assert said in answer.refused(code, {"E_RECIPE": 2, "E_BUNDLE": 4}[code])  # type: ignore[attr-defined]


def test_the_gain_over_training_from_scratch(seqloom: Command, texts: Path, tmp_path: Path) -> None:
    run = pretrained(seqloom, texts, tmp_path)
    form = {"pairs": texts / "pairs.tsv", "encoder": "rnn", "take": ", take: [encoder, source_embedding]"}
    (tmp_path / "labels.yaml").write_text(LABELS.format(**form))
    words = ("train", tmp_path / "labels.yaml", "--from", run, "--run", tmp_path / "gain", "--seeds", "1-2")
    words = (*words, "--set", "steps=1")  # short, as without --gain
    answer = seqloom(*words, "--gain", "20,100", "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert [row["share"] for row in told["portions"]] == [0.2, 1.0]
    few, all_of_them = told["portions"]
    assert 0 < few["pairs"] < all_of_them["pairs"] / 2
    for row in told["portions"]:
        assert row["gain"] == pytest.approx(row["begun"]["mean"] - row["scratch"]["mean"])
        assert row["interval"][0] <= row["gain"] + 1e-9
        assert row["gain"] <= row["interval"][1] + 1e-9
        assert row["scratch"]["runs"] == row["begun"]["runs"] == 2
    page = (tmp_path / "gain" / "report.html").read_text()
    assert "20 %" in page
    assert "<script" not in page
    scratch, begun = (load(tmp_path / "gain" / "20%" / how / "seed-1") for how in ("scratch", "begun"))
    assert not scratch.recipe.training.take
    assert begun.recipe.training.take
    again = seqloom(*words, "--gain", "20,100")
    assert again.code == 0, again.err
    assert "from scratch" in again.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gain", "1,10"], "add --from RUN"),
        (["--gain", "0,10", "--from", "RUN"], "is no percentage"),
        (["--gain", "ten", "--from", "RUN"], "is no percentage"),
        (["--gain", "10", "--from", "RUN", "--set", "training.steps=1,2"], "sweeps over several"),
    ],
)
def test_what_has_no_gain(more: list[str], said: str, seqloom: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text(LABELS.format(pairs=texts / "pairs.tsv", encoder="rnn", take=""))
    assert said in seqloom("train", tmp_path / "labels.yaml", *more).refused("E_USAGE", 2)


def test_a_beginning_that_is_not_there_is_told_before_anything_is_trained(
    seqloom: Command, texts: Path, tmp_path: Path
) -> None:
    (tmp_path / "labels.yaml").write_text(LABELS.format(pairs=texts / "pairs.tsv", encoder="rnn", take=""))
    words = ("train", tmp_path / "labels.yaml", "--run", tmp_path / "gain", "--gain", "10")
    assert "no such run" in seqloom(*words, "--from", tmp_path / "none").refused("E_FILE", 6)
    assert not (tmp_path / "gain").exists()
