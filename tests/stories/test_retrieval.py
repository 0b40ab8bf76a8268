"""A person looks for the text that answers another: train, index, ask, judge, explain, go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import Command
from retrieval import trained, write_recipe
from seqloom import weights
from seqloom.api.index import Index
from seqloom.api.ranking import Protocol, draws, evaluate_ranking
from seqloom.api.retriever import load_retriever
from seqloom.api.testset import held_out
from seqloom.api.train import Wishes, train
from seqloom.training import checkpoints

pytest_plugins = ["command_fixtures"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained(), tmp_path / "run"))


def test_the_training_targets_answer(run: Path, seqloom: Command) -> None:
    made = seqloom("index", run)
    assert made.code == 0
    assert made.out.strip() == str(run / "index")
    assert "different candidates" in made.err
    asked = seqloom("predict", run, "--text", "tell me of red and sea or sky", "--top", 3)
    rows = [line.split("\t") for line in asked.out.splitlines()]
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "2"], ["1", "3"]]
    scores = [float(row[2]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len({row[3] for row in rows}) == 3
    assert all("it is" in row[3] for row in rows)


def test_lines_in_are_lines_out_and_json_holds_the_candidates(run: Path, seqloom: Command, tmp_path: Path) -> None:
    seqloom("index", run)
    lines = tmp_path / "asked.txt"
    lines.write_text("tell me of red and sea or sky\n\ntell me of rose and rose or red\n")
    plain = seqloom("predict", run, lines)
    assert plain.code == 0
    assert len(plain.out.splitlines()) == 3
    assert plain.out.splitlines()[1] == ""
    assert "1 empty" in plain.err
    told = [json.loads(line) for line in seqloom("predict", run, lines, "--top", 2, "--json").out.splitlines()]
    assert [one["text"] for one in told] == plain.out.splitlines()
    assert [len(one["candidates"]) for one in told] == [2, 0, 2]
    assert set(told[0]["candidates"][0]) == {"text", "score"}
    assert told[1]["skipped"]


def test_candidates_of_a_file_in_a_place_of_their_own(run: Path, seqloom: Command, tmp_path: Path) -> None:
    file = tmp_path / "answers.txt"
    file.write_text("it is apple with fish or air\n\nit is grass with grass or grass\nit is apple with fish or air\n")
    told = json.loads(seqloom("index", run, file, "--output", tmp_path / "few", "--json").out)
    assert told["candidates"] == 2
    text = "tell me of red and sea or sky"
    asked = seqloom("predict", run, "--index", tmp_path / "few", "--text", text, "--top", 2)
    assert [line.split("\t")[3] for line in asked.out.splitlines()] == [
        "it is apple with fish or air",
        "it is grass with grass or grass",
    ]
    assert not (run / "index").exists()
    assert (tmp_path / "few" / "candidates.txt").read_text().splitlines() == asked_texts(tmp_path / "few")


def asked_texts(folder: Path) -> list[str]:
    return (folder / "candidates.txt").read_text(encoding="utf-8").split("\n")[:-1]


def test_an_index_goes_round(run: Path, tmp_path: Path) -> None:
    retriever = load_retriever(run)
    index, left_out = retriever.indexed(
        ["it is air", "", "  it is air ", "ein Satz\tmit Tab", "it is\nfish", "x " * 13]
    )
    assert left_out == 1
    assert index.texts == ("it is air", "ein Satz\tmit Tab", "it is fish")
    index.save(tmp_path / "index", "abc")
    again = Index.load(tmp_path / "index", "abc", "fix")
    assert again.texts == index.texts
    assert torch.equal(again.vectors, index.vectors)
    torch.testing.assert_close(index.vectors[0], retriever.candidates(["it is air"])[0])
    assert set(weights.read(tmp_path / "index" / "vectors.safetensors")) == {"vectors"}


def test_a_model_in_python_ranks_as_the_command_does(run: Path, seqloom: Command) -> None:
    seqloom("index", run)
    found = load_retriever(run)("tell me of red and sea or sky", top=2)
    asked = seqloom("predict", run, "--text", "tell me of red and sea or sky", "--top", 2)
    assert [one.text for one in found.hypotheses] == [line.split("\t")[3] for line in asked.out.splitlines()]


def test_both_protocols_sign_what_they_ranked(run: Path, seqloom: Command) -> None:
    every = json.loads(seqloom("evaluate", run, "--json").out)
    drawn = json.loads(seqloom("evaluate", run, "--json", "--among", 5).out)
    assert [one["name"] for one in every["scores"]] == ["recall@1", "recall@5", "MRR"]
    different = len({text for example in held_out(load_retriever(run).recipe) for text in example.references})
    assert all(f"candidates:all-{different}|depth:" in one["signature"] for one in every["scores"])
    assert all(f"candidates:1-of-5|drawn-from:{different}|seed:" in one["signature"] for one in drawn["scores"])
    assert drawn["scores"][1]["value"] == 100.0, "the right one is always among five of five"
    assert drawn["scores"][2]["value"] >= every["scores"][2]["value"]
    assert every["scores"][2]["value"] > 50, "it learned something"
    said = seqloom("evaluate", run)
    assert "Ranked among all candidates" in said.out
    assert not (run / "report.html").exists()


def test_draws_hold_the_right_text_once_and_no_other_right_one(run: Path) -> None:
    examples = held_out(load_retriever(run).recipe)
    candidates = [text for example in examples for text in example.references]
    one, again = ([*draws(candidates, examples, Protocol(6))] for _ in range(2))
    for row, example in zip(one, examples, strict=True):
        texts = [candidates[place] for place in row]
        assert len(set(row.tolist())) == 6
        assert texts.count(example.target) == 1
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    other = [*draws(candidates, examples, Protocol(6, seed=2))]
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_gate_on_recall(run: Path, seqloom: Command) -> None:
    assert seqloom("evaluate", run, "--fail-under", "mrr=10").code == 0
    assert "recall_at" in seqloom("evaluate", run, "--fail-under", "recall_at=101").refused("E_QUALITY", 7)


def test_explain_names_the_words_that_carried_the_match(run: Path, seqloom: Command) -> None:
    seqloom("index", run)
    text, target = "tell me of red and red or red", "it is apple with apple or apple"
    told = json.loads(seqloom("explain", run, text, "--target", target, "--json").out)
    assert told["rank"] is None
    assert [word["word"] for word in told["source_words"]] == text.split()
    lost = {word["word"]: word["lost"] for word in told["source_words"]}
    assert lost["red"] > lost["tell"]
    assert sum(word["pooled"] for word in told["candidate_words"]) < 1  # the end has the rest
    alone = load_retriever(run)
    without = alone.queries([alone.codecs.encode("me of red and red or red")])[0] @ alone.candidates([target])[0]
    assert lost["tell"] == pytest.approx(told["score"] - float(without), abs=1e-5)
    said = seqloom("explain", run, text)
    assert said.code == 0
    assert "the best of the index" in said.out
    assert "lost without it" in said.out


@pytest.mark.parametrize(("encoder", "pooling"), [("rnn", "last"), ("convolution", "max"), ("transformer", "mean")])
def test_resumed_equals_uninterrupted_bit_for_bit(encoder: str, pooling: str, tmp_path: Path) -> None:
    """Law 10 for the in-batch loss, through the files of a run."""
    recipe = write_recipe(tmp_path, encoder, pooling)
    settings = ["training.epochs=null", "training.steps=8", "training.validate_every=4", "model.dropout=0.2"]
    whole = train(recipe, tmp_path / "whole", settings)
    steps: list[int] = []

    def stop() -> str | None:
        steps.append(1)
        return "preempted" if len(steps) == 3 else None

    assert train(recipe, tmp_path / "parts", settings, Wishes(stop=stop)).reason == "preempted"
    parts = train(recipe, tmp_path / "parts", settings)
    one, other = (checkpoints.load_weights(checkpoints.last(run.folder)) for run in (whole, parts))  # type: ignore[arg-type]
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_a_language_model_of_the_texts_learned_can_be_taken_over(tmp_path: Path) -> None:
    """A dual encoder begins with another run's encoder, or with another dual encoder."""
    recipe = write_recipe(tmp_path)
    first = train(recipe, tmp_path / "first", ["training.epochs=1"])
    again = train(recipe, tmp_path / "again", ["training.epochs=1"], Wishes(start=first.folder))
    mine, theirs = (load_retriever(run.folder).network for run in (again, first))
    assert any(not torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))
    taken = ["training.epochs=1", "training.take=[encoder, source_embedding]", "training.freeze=[encoder]"]
    frozen = load_retriever(train(recipe, tmp_path / "taken", taken, Wishes(start=first.folder)).folder)
    for name, value in frozen.network.encoder.named_parameters():
        if not name.startswith("vectors"):
            assert torch.equal(value, dict(theirs.encoder.named_parameters())[name])


def test_python_evaluates_by_the_recipe(run: Path) -> None:
    found = evaluate_ranking(run)
    assert found.scores["recall_at"].name == "recall@1"
    assert found.predicted
    assert found.perplexity is None


def test_seeds_are_several_runs_and_no_ensemble(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    done = seqloom(
        "train", recipe, "--run", tmp_path / "many", "--seeds", "1-2", "--set", "training.epochs=1", "--json"
    )
    assert done.code == 0
    assert "--ensemble" not in done.err
    assert [family["ensemble"] for family in json.loads(done.out)["families"]] == [None]


def test_info_speaks_of_no_search(run: Path, seqloom: Command) -> None:
    told = seqloom("info", run).out
    assert "recall@5" in told
    assert "beam" not in told
    assert "confidence" not in told
