"""A person classifies and tags: a toy task of each kind is learned in seconds, and every command has words for it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from commands import Command
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.train import train

pytest_plugins = ["command_fixtures"]

STEMS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "bdgklmnprst"]
MOODS = {"praise": ["fine", "lovely", "bright"], "blame": ["dull", "awful", "grim"], "neither": []}
CLASSES = """
data: {{train: {data}}}
source: {{tokenizer: words}}
target: {{tokenizer: whole}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: {encoder}, width: 16, dropout: 0.1}}
  decoder: {{kind: label, pooling: {pooling}}}
batching: {{tokens: 64}}
training: {{epochs: 6, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy, f1], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
TAGS = """
data:
  train: {{kind: columns, path: {folder}/train.tsv}}
  dev: {{kind: columns, path: {folder}/dev.tsv}}
  test: {{kind: columns, path: {folder}/test.tsv}}
source: {{tokenizer: characters}}
target: {{tokenizer: symbols}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: spelled, characters: {{width: 32}}, buckets: 4096, width: 16, words: {{kind: rnn, width: 32}}}}
  decoder: {{kind: tags, transitions: true}}
batching: {{tokens: 512}}
training: {{epochs: 6, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy, span_f1], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def write_moods(path: Path, sentences: int = 400) -> None:
    """The label of a sentence is told by one of its words, or by none."""
    rng = Random(1)
    lines = []
    for _ in range(sentences):
        label = rng.choice(list(MOODS))
        words = rng.choices(STEMS[:12], k=rng.randint(2, 4))
        words[rng.randrange(len(words))] = rng.choice(MOODS[label] or STEMS[:12])
        lines.append(f"{' '.join(words)}\t{label}\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_tags(path: Path, stems: list[str], sentences: int, seed: int) -> None:
    """Spans whose words are told by their endings, beginnings of spans by the word before."""
    rng = Random(seed)
    lines = []
    for _ in range(sentences):
        before = "O"
        for _ in range(rng.randint(2, 7)):
            ending, kind = rng.choice([("", "O"), ("ix", "GAUL"), ("us", "ROMAN")])
            tag = "O" if kind == "O" else f"{'I' if before.endswith(kind) else 'B'}-{kind}"
            lines.append(f"{rng.choice(stems)}{ending}\t{tag}\n")
            before = tag
        lines.append("\n")
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that looks at words by attention."""
    folder = tmp_path_factory.mktemp("moods")
    write_moods(folder / "moods.tsv")
    (folder / "moods.yaml").write_text(CLASSES.format(data=folder / "moods.tsv", encoder="rnn", pooling="attention"))
    return train(folder / "moods.yaml", folder / "run").folder


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger whose test words were never seen in training."""
    folder = tmp_path_factory.mktemp("tags")
    rng = Random(3)
    stems = rng.sample(STEMS, len(STEMS))
    for part, own, sentences in (("train", stems[200:], 500), ("dev", stems[100:200], 60), ("test", stems[:100], 100)):
        write_tags(folder / f"{part}.tsv", own, sentences, len(part))
    (folder / "tags.yaml").write_text(TAGS.format(folder=folder))
    return train(folder / "tags.yaml", folder / "run").folder


def test_classes_are_learned(moods: Path) -> None:
    found = evaluate(load(moods))
    assert found["accuracy"] > 95, found


@pytest.mark.parametrize(("encoder", "pooling"), [("convolution", "max"), ("bag", "mean")])
def test_other_encoders_learn_them_too(encoder: str, pooling: str, tmp_path: Path) -> None:
    write_moods(tmp_path / "moods.tsv")
    (tmp_path / "moods.yaml").write_text(CLASSES.format(data=tmp_path / "moods.tsv", encoder=encoder, pooling=pooling))
    run = train(tmp_path / "moods.yaml", tmp_path / "run", ["training.epochs=12"]).folder
    assert evaluate(load(run))["accuracy"] > 90


def test_words_never_seen_are_tagged_by_their_letters(tagger: Path) -> None:
    found = evaluate(load(tagger))
    assert found["accuracy"] > 95, found
    assert found["span_f1"] > 90, found


def test_every_label_has_a_row(moods: Path) -> None:
    found = evaluate(load(moods))
    assert found.by_label is not None
    assert {row.label for row in found.by_label.labels} == set(MOODS)
    assert sum(row.wanted for row in found.by_label.labels) == found.sentences
    right = sum(row.recall * row.wanted for row in found.by_label.labels) / found.sentences
    assert right == pytest.approx(found["accuracy"])
    assert found.by_frequency is None, "labels are no words of which some are rare"
    assert (found.by_label.spans, found.by_label.unseen) == (None, {})


def test_the_tables_of_evaluate(moods: Path, tagger: Path, seqloom: Command) -> None:
    said = seqloom("evaluate", moods, "--no-report").out
    assert "Labels" in said
    assert all(label in said for label in MOODS)
    assert "how often training saw" not in said
    assert "Spans" not in said
    told = json.loads(seqloom("evaluate", moods, "--no-report", "--json").out)
    assert {row["label"] for row in told["by_label"]} == set(MOODS)
    assert (told["by_span"], told["by_frequency"], told["unseen_labels"]) == (None, None, {})
    said = seqloom("evaluate", tagger, "--no-report").out
    assert "Spans by their type" in said
    assert "by source length (words)" in said, "a tag belongs to a word, whatever words are made of"
    told = json.loads(seqloom("evaluate", tagger, "--no-report", "--json").out)
    assert {row["label"] for row in told["by_span"]} == {"GAUL", "ROMAN"}


def test_an_output_file_is_judged_by_labels(tmp_path: Path, seqloom: Command) -> None:
    (tmp_path / "said").write_text("B-X I-X O\nO O\n")
    (tmp_path / "wanted").write_text("B-X I-X O\nB-Y O\n")
    files = ("--outputs", tmp_path / "said", "--reference", tmp_path / "wanted", "--json")
    told = json.loads(seqloom("evaluate", *files, "--metric", "accuracy").out)
    assert {row["label"]: row["f1"] for row in told["by_span"]} == {"X": 100.0, "Y": 0.0}
    assert json.loads(seqloom("evaluate", *files, "--metric", "exact").out)["by_label"] is None


def test_a_label_that_training_has_not_is_counted_and_told(moods: Path, seqloom: Command, tmp_path: Path) -> None:
    lines = [*(moods.parent / "moods.tsv").read_text().splitlines()[:20], "bab dull\tscorn", "bab grim\tscorn"]
    (tmp_path / "test.tsv").write_text("".join(f"{line}\n" for line in lines))
    answer = seqloom("evaluate", moods, "--data", tmp_path / "test.tsv", "--no-report", "--json")
    assert answer.code == 0
    assert "caution: 2 of 22 wanted labels are none that training has" in answer.err
    told = json.loads(answer.out)
    assert told["unseen_labels"] == {"scorn": 2}
    assert told["scores"][0]["value"] <= 100 * 20 / 22
    assert told["perplexity"] is not None, "of what it could have said"


def test_a_label_that_cannot_be_said_has_no_score(moods: Path, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("bab dull\tblame\nbab dull\tscorn\n")
    answer = seqloom("score", moods, tmp_path / "pairs.tsv", "--json")
    assert answer.code == 0, answer
    assert "2 pairs, 1 labels" in answer.err
    assert "not counted: 1 that cannot be said at all" in answer.err
    said, unsaid = map(json.loads, answer.out.splitlines())
    assert said["log_prob"] <= 0
    assert (unsaid["log_prob"], unsaid["perplexity"], unsaid["token_scores"][0]) == (None, None, None)


def test_nothing_known_in_a_source_is_still_answered(moods: Path, tagger: Path) -> None:
    for run, text, labels in ((moods, "zzz qqq", 1), (tagger, "zzz qqq", 2)):
        said = load(run)(text)
        assert len(said.text.split()) == labels
        assert 0 <= said.confidence <= 1


def test_empty_lines_are_lines(moods: Path, tagger: Path, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "asked").write_text("bab dull\n\nbab fine\n")
    for run in (moods, tagger):
        answer = seqloom("predict", run, tmp_path / "asked")
        assert answer.code == 0, answer
        first, empty, last = answer.out.split("\n")[:3]
        assert first
        assert last
        assert not empty


def test_the_best_labels_with_their_probabilities(moods: Path, seqloom: Command) -> None:
    answer = seqloom("predict", moods, "--text", "bab dull dab", "-n", 3, "--format", "tsv")
    rows = [line.split("\t") for line in answer.out.splitlines()]
    assert {word for row in rows for word in row} >= set(MOODS), answer.out
    model = load(moods)
    scores = model.score([("bab dull dab", label) for label in MOODS])
    assert sum(2.718281828**score.log_prob for score in scores) == pytest.approx(1.0, abs=1e-4)


def test_several_seeds_answer_as_one(moods: Path, seqloom: Command) -> None:
    other = train(moods.parent / "moods.yaml", moods.parent / "other", ["runtime.seed=2"]).folder
    told = json.loads(seqloom("evaluate", moods, other, "--ensemble", "--no-report", "--json").out)
    assert told["scores"][0]["value"] > 95
    assert {row["label"] for row in told["by_label"]} == set(MOODS)
    compared = seqloom("compare", moods, other)
    assert compared.code == 0, compared
    assert "accuracy" in compared.out


def test_a_certain_end_is_no_part_of_a_label(moods: Path, seqloom: Command) -> None:
    """It is asked nowhere what made the model say it, nor whether its attention was a reason."""
    text = "a good day"
    told = json.loads(seqloom("explain", moods, text, "--attribute", "occlusion", "--json").out)["attribution"]
    assert [one["word"] for one in told["origins"]] == [seqloom("predict", moods, "--text", text, "-q").out.strip()]
    faith = json.loads(seqloom("explain", moods, text, "--faithfulness", "--json").out)["faithfulness"]
    assert faith["steps"] == faith["pairs"] == 1


def test_a_tagger_can_be_looked_into(tagger: Path, seqloom: Command, tmp_path: Path) -> None:
    assert seqloom("explain", tagger, "babix bab").code == 0
    assert "layer 1" in seqloom("explain", tagger, "--depth").out
    assert seqloom("explain", tagger, "babix bab", "--attribute", "gradient").code == 0
    answer = seqloom("evaluate", tagger, "--report", tmp_path / "report.html")
    assert "no report" not in answer.err, answer.err
    assert "by_span" in (tmp_path / "report.html").read_text()
