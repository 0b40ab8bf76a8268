"""A person asks questions about short texts, and is answered with words of the text."""

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

PEOPLE = ["mary", "john", "sandra", "daniel", "anna", "peter"]
PLACES = ["garden", "kitchen", "hall", "office", "old barn", "small room", "north tower"]
RECIPE = """
data: {{train: {{path: {data}, extras: {{question: 2}}}}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
extras: {{question: {{use: shared}}}}
model:
  source_embedding: {{width: 32}}
  encoder: {{kind: bag, width: 64}}
  decoder: {{kind: span, query: question}}
batching: {{tokens: 512}}
training: {{epochs: 9, validate_every: 200, optimiser: {{kind: adam, lr: 5e-3}}, metric: answer_exact}}
evaluation: {{metrics: [answer_exact, answer_f1], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def write_facts(path: Path, count: int) -> None:
    """Who is where: three facts, and a question about one of them."""
    rng, lines = Random(1), []
    for _ in range(count):
        who, where = rng.sample(PEOPLE, 3), rng.sample(PLACES, 3)
        text = " ".join(f"{a} {rng.choice(['is in', 'went to'])} the {b} ." for a, b in zip(who, where, strict=True))
        fact = rng.randrange(3)
        asked = [(f"where is {who[fact]} ?", where[fact]), (f"who is in the {where[fact]} ?", who[fact])]
        question, answer = rng.choice(asked)
        lines.append(f"{text}\t{answer}\t{question}\n")
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    write_facts(folder / "facts.tsv", 2500)
    (folder / "facts.yaml").write_text(RECIPE.format(data=folder / "facts.tsv"))
    return train(folder / "facts.yaml", folder / "run").folder


def test_most_answers_are_right_and_all_stand_in_their_text(run: Path) -> None:
    model = load(run)
    found = evaluate(model)
    assert found["answer_exact"] > 90, found
    assert found["answer_f1"] >= found["answer_exact"]
    assert all(prediction.text and prediction.text in prediction.source for prediction in found.predictions)
    assert found.by_label is None, "answers are no labels"


def test_words_that_training_never_saw_can_be_answered_with(run: Path) -> None:
    model = load(run)
    text = "zebedee went to the garden . anna is in the quarry ."
    for question in ("where is anna ?", "who is in the garden ?"):
        answer = model({"source": text, "question": question})
        assert answer.text in text
        assert len(model({"source": text, "question": question}, n_best=5).hypotheses) == 5


def test_asking_and_looking_inside(run: Path, seqloom: Command, tmp_path: Path) -> None:
    text, question = "mary is in the old barn . john went to the hall .", "question=where is mary ?"
    said = seqloom("predict", run, "--text", text, "--extra", question, "--json", "-q")
    told = json.loads(said.out)
    assert told["text"] in text
    shown = json.loads(seqloom("explain", run, text, "--extra", question, "--json").out)
    assert shown["answer"] == told["text"]
    weights = shown["weights"][0][0]
    assert sum(weights[0]) == pytest.approx(1, abs=1e-3)
    first = shown["source_tokens"][max(range(len(weights[0])), key=weights[0].__getitem__)]
    assert first == shown["output"][0]["token"], "it looked where the answer begins"
    assert seqloom("explain", run, text, "--extra", question, "--html", tmp_path / "x.html").code == 0
    assert seqloom("explain", run, text, "--extra", question, "--attribute", "gradient").code == 0


def test_answers_that_do_not_stand_in_their_text_are_counted(seqloom: Command, tmp_path: Path) -> None:
    write_facts(tmp_path / "facts.tsv", 60)
    with (tmp_path / "facts.tsv").open("a") as file:
        file.writelines(f"mary is in the hall . {n} .\tparis\twhere is mary ?\n" for n in range(40))
    (tmp_path / "facts.yaml").write_text(RECIPE.format(data=tmp_path / "facts.tsv"))
    said = seqloom("train", tmp_path / "facts.yaml", "--run", tmp_path / "run", "--set", "training.epochs=1")
    assert said.code == 0, said
    assert "no_span" in said.err
    (tmp_path / "facts.tsv").write_text("".join(f"mary is here {n} .\tparis\twhere ?\n" for n in range(40)))
    line = seqloom("train", tmp_path / "facts.yaml", "--run", tmp_path / "none", "-q").refused("E_EMPTY", 3)
    assert "no_span" in line
