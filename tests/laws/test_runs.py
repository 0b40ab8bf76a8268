"""Laws 4, 9 and 10 on whole runs: batch, round trips, resume, through the public functions and real files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom import weights
from seqloom.api.load import find_bundle
from seqloom.api.search_errors import measure_search_errors
from seqloom.api.train import Run, Wishes, train
from seqloom.bundle import open_bundle
from seqloom.recipe import Recipe, recipe_from
from seqloom.training import checkpoints
from seqloom.training.observers import CLOCK_FIELDS

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words and their reversal: enough to learn from, little enough to be quick."""
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    rng = random.Random(1)
    words = {"".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 6))) for _ in range(400)}
    path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in sorted(words)))
    return path


def recipe(pairs: Path, **changes: object) -> Recipe:
    raw: dict[str, object] = {
        "data": {"train": str(pairs), "split": {"dev": 0.1, "test": 0.1}},
        "source": {"tokenizer": "characters"},
        "target": {"tokenizer": "characters"},
        "model": {
            "source_embedding": {"width": 8},
            "target_embedding": {"width": 8},
            "encoder": {"width": 16, "dropout": 0.2},
            "decoder": {"kind": "luong", "width": 16, "dropout": 0.2},
        },
        "batching": {"tokens": 128},
        "training": {"steps": 12, "validate_every": 5, "log_every": 3, "optimiser": {"kind": "adam", "lr": 0.01}},
        "evaluation": {"metrics": ["exact", "cer"], "validate_examples": 10},
        "runtime": {"threads": 1},
    }
    return recipe_from({**raw, **changes}, "test")


def stopping_after(step: int) -> Callable[[], str | None]:
    """Asked once after every step: stops the sitting after so many of them."""
    asked = iter(range(1, 1000))
    return lambda: "interrupted" if next(asked) >= step else None


def log_of(run: Run) -> list[dict[str, object]]:
    return [{key: value for key, value in line.items() if key not in CLOCK_FIELDS} for line in run.metrics]


VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "input feeding": {
        "model": {"decoder": {"kind": "luong", "width": 16, "dropout": 0.3, "context": {"recurrence": "attentional"}}}
    },
    "bahdanau, two layers, gru": {
        "model": {
            "encoder": {"cell": "gru", "width": 8, "layers": 2, "dropout": 0.1},
            "decoder": {"kind": "bahdanau", "cell": "gru", "width": 8, "layers": 2, "dropout": 0.1},
        }
    },
    "scheduled sampling and noise": {
        "task": {
            "sampling": {"kind": "linear", "steps": 15},
            "sampling_pick": "sample",
            "history": {"drop": 0.1, "replace": 0.1, "swap": 0.1},
            "source_noise": {"drop": 0.1, "mask": 0.1},
            "edit_temperature": 0.5,
            "label_smoothing": 0.1,
        }
    },
    "accumulation, ema, plateau": {
        "training": {
            "steps": 12,
            "accumulate": 2,
            "ema": 0.9,
            "validate_every": 3,
            "schedule": {"kind": "plateau", "patience": 1},
            "patience": 3,
            "average": 2,
        }
    },
    "batches of the machine's choice": {"batching": {"tokens": "auto", "sentences": 20}},
    "bf16": {"runtime": {"threads": 1, "precision": "bf16"}},
    "freeze": {"training": {"steps": 12, "validate_every": 5, "freeze": ["encoder", "target_embedding.*"], "ema": 0.9}},
    "r_drop": {"task": {"r_drop": 2.0, "label_smoothing": 0.1}},
    "risk": {"task": {"risk": {"metric": "cer", "samples": 3, "alpha": 0.1, "nll": 0.2}}},
    "bpe dropout": {
        "source": {"tokenizer": {"kind": "bpe", "size": 30, "sampling": 0.3}},
        "target": {"tokenizer": {"kind": "unigram", "size": 20, "sampling": 0.3}},
    },
    "shared and tied": {
        "model": {
            "shared": True,
            "tied": True,
            "source_embedding": {"width": 8},
            "target_embedding": {"width": 8},
            "encoder": {"width": 8},
            "decoder": {"width": 8, "dropout": 0.2},
        }
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_and_resumed_equals_uninterrupted(name: str, pairs: Path, tmp_path: Path) -> None:
    """Law 10, bit for bit: weights, bundle and log, stopped after one step, then two, then four, ..."""
    chosen = recipe(pairs, **VARIANTS[name])
    whole = train(chosen, tmp_path / "whole")
    pieces = Run(tmp_path / "pieces", "interrupted")
    sitting = 1
    while pieces.reason == "interrupted":
        pieces = train(chosen, tmp_path / "pieces", wishes=Wishes(stop=stopping_after(sitting)))
        sitting *= 2
    assert pieces.reason == whole.reason
    expected, found = (open_bundle(run.bundle).weights() for run in (whole, pieces))
    weights.compare(expected, found, "resumed")
    for key, tensor in expected.items():
        assert torch.equal(tensor, found[key]), key
    assert log_of(pieces) == log_of(whole)
    assert (pieces.bundle / "recipe.yaml").read_text().replace("pieces", "whole") == (
        whole.bundle / "recipe.yaml"
    ).read_text()


@pytest.fixture(scope="module")
def run(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(recipe(pairs), tmp_path_factory.mktemp("runs") / "run")


def test_a_finished_run_is_returned_as_it_is(run: Run, pairs: Path) -> None:
    before = (run.bundle / "card.json").read_bytes()
    assert train(recipe(pairs), run.folder).reason == run.reason
    assert (run.bundle / "card.json").read_bytes() == before


def test_another_recipe_in_the_same_folder_is_refused(run: Run, pairs: Path) -> None:
    with pytest.raises(seqloom.SeqloomError, match=r"E_RUN.*training.steps: 12 -> 13"):
        train(recipe(pairs, training={"steps": 13, "validate_every": 5, "log_every": 3}), run.folder)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_ends_with_the_checkpoint_to_keep(keep: str, pairs: Path, tmp_path: Path) -> None:
    """By a metric turned round the first checkpoint is the best one, and the last one is another."""
    training = {"steps": 12, "validate_every": 5, "metric": "nll", "better": "higher", "keep": keep}
    run = train(recipe(pairs, training={**training, "optimiser": {"kind": "adam", "lr": 0.01}}), tmp_path / "run")
    named = {"best": checkpoints.best(run.folder), "last": checkpoints.last(run.folder)}
    assert named["best"] != named["last"]
    kept = named[keep]
    assert kept is not None
    for key, tensor in checkpoints.load_weights(kept).items():
        assert torch.equal(tensor, open_bundle(run.bundle).weights()[key]), key


def test_changed_data_is_refused_and_allowed(pairs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.tsv"
    data.write_bytes(pairs.read_bytes())
    chosen = recipe(data)
    train(chosen, tmp_path / "run", wishes=Wishes(stop=stopping_after(2)))
    data.write_text(data.read_text() + "zz\tzz\n")
    with pytest.raises(seqloom.SeqloomError, match="E_CHANGED"):
        train(chosen, tmp_path / "run")
    assert train(chosen, tmp_path / "run", wishes=Wishes(allow_data_change=True)).reason == "steps"


def test_a_bundle_moved_elsewhere_predicts_the_same(run: Run, tmp_path: Path) -> None:
    """Law 9: what was saved is what is loaded, wherever it lies."""
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(find_bundle(run.folder), moved)
    texts = ["abc", "hgfe", "", "zzz"]
    one, other = seqloom.load(run.folder)(texts), seqloom.load(moved)(texts)
    assert [p.as_dict() for p in one] == [p.as_dict() for p in other]


def test_predictions_do_not_depend_on_batch_or_order(run: Run) -> None:
    """Law 4, through the public door: tokens equal, scores to 1e-5."""
    model = seqloom.load(run.folder)
    rng = random.Random(3)
    texts = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 12))) for _ in range(60)]
    together = model(texts, beam=3)
    alone = [model(text, beam=3) for text in texts]
    backwards = model(texts[::-1], beam=3, batch_tokens=50)[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert a.text == b.text == c.text
        assert a.score == pytest.approx(b.score, abs=1e-5)
        assert a.score == pytest.approx(c.score, abs=1e-5)


def test_deterministic_predictions_are_equal_to_the_last_bit(run: Run) -> None:
    model = seqloom.load(run.folder)
    rng = random.Random(4)
    texts = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 12))) for _ in range(40)]
    together = model(texts, beam=3, deterministic=True)
    backwards = model(texts[::-1], beam=3, deterministic=True, batch_tokens=7)[::-1]
    assert [p.as_dict() for p in together] == [p.as_dict() for p in backwards]


def test_wider_beams_miss_the_best_output_less_often(run: Run) -> None:
    found = measure_search_errors(seqloom.load(run.folder), ["abcd", "hgf", "ab", "hhaf"], beams=(1, 30))
    assert found.tried == 4
    assert found.proven > 0
    assert found.errors[30] <= found.errors[1] <= found.proven


def test_search_score_equals_forced_score(run: Run) -> None:
    model = seqloom.load(run.folder)
    for prediction in model(["abcd", "hh", "gfab"], beam=4, n_best=3):
        for output in prediction.hypotheses:
            [scored] = model.score([(prediction.source, output.text)])
            if not output.truncated:
                assert scored.log_prob == pytest.approx(output.log_prob, abs=1e-4)
                assert scored.token_scores == pytest.approx(output.token_scores, abs=1e-4)


def test_lines_in_are_lines_out_and_in_order(run: Run) -> None:
    model = seqloom.load(run.folder)
    texts = ["", "  ", "abc", "\t", "cba"]
    found = model(texts)
    assert [p.source for p in found] == texts
    assert [p.skipped for p in found] == [True, True, False, True, False]
    assert [p.text for p in found][:2] == ["", ""]


def test_the_card_names_every_file(run: Run) -> None:
    card = json.loads((run.bundle / "card.json").read_text())
    there = {p.relative_to(run.bundle).as_posix() for p in run.bundle.rglob("*") if p.is_file()}
    assert set(card["files"]) == there - {"card.json"}
