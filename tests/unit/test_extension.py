"""Fine-tuning with new pieces: old ids, old scores but for what new pieces take, and new pieces that are learned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.api.extension import added, carry_over, extended
from seqloom.api.model import Model
from seqloom.api.train import Wishes, train
from seqloom.data.batching import collate_pairs
from seqloom.data.examples import Example
from seqloom.models.generator import Generator
from seqloom.recipe import Recipe, recipe_from
from seqloom.specials import SPECIALS
from seqloom.wiring import build_model

OLD, LATER = "abcdef", "abcdefxyz"


def write(path: Path, letters: str, count: int = 150, tags: str = "") -> Path:
    """Words and their reversal, with a tag where asked for."""
    rng = random.Random(len(letters))
    words = {"".join(rng.choice(letters) for _ in range(rng.randint(2, 5))) for _ in range(count)}
    rows = [f"{word}\t{word[::-1]}" + (f"\t{rng.choice(tags)}" if tags else "") for word in sorted(words)]
    path.write_text("".join(row + "\n" for row in rows))
    return path


def recipe(path: Path, **changes: object) -> Recipe:
    raw: dict[str, object] = {
        "data": {"train": str(path), "split": {"dev": 0.1, "test": 0.1}},
        "source": {"tokenizer": "characters"},
        "target": {"tokenizer": "characters"},
        "model": {
            "source_embedding": {"width": 8},
            "target_embedding": {"width": 8},
            "encoder": {"width": 16},
            "decoder": {"width": 16},
        },
        "batching": {"tokens": 256},
        "training": {"steps": 4, "optimiser": {"kind": "adam", "lr": 0.02}},
        "evaluation": {"metrics": ["exact"], "validate_examples": 10},
        "runtime": {"threads": 1},
    }
    return recipe_from({**raw, **changes}, "test")


SMALL = {"encoder": {"width": 8}, "decoder": {"width": 8}}
WIDTHS = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}, **SMALL}
MODELS: dict[str, dict[str, object]] = {
    "plain": {"model": WIDTHS},
    "tied": {"model": {**WIDTHS, "tied": True}},
    "shared": {"model": {**WIDTHS, "shared": True, "tied": True}},
    "one-hot": {"model": {**SMALL, "source_embedding": "onehot", "target_embedding": "onehot", "head": "mlp"}},
    "tags before the source": {"model": WIDTHS, "extras": {"tags": {}}},
    "tags by an encoder": {"model": WIDTHS, "extras": {"tags": {"use": "encoder"}}},
}


def grown(name: str, folder: Path) -> tuple[Model, Model]:
    """A trained model, and the same with larger vocabularies, untrained since."""
    tags = "ps" if "tags" in name else ""
    path = write(folder / "old.tsv", OLD, tags=tags)
    data = {"train": {"path": str(path), "extras": {"tags": 2}}} if tags else {"train": str(path)}
    chosen = recipe(path, **MODELS[name], data={**data, "split": {"dev": 0.1, "test": 0.1}})
    first = train(chosen, folder / "first").model
    extras = {"tags": "q"} if tags else {}
    new = [Example("xya", ("ayx",), "new", 1, extras), Example("z", ("z",), "new", 2, extras)]
    codecs = extended(chosen, first.codecs, lambda: iter(new), first.codecs.extras.__getitem__)
    network: Generator = build_model(chosen, codecs)
    carry_over(first.network, first.codecs, network, codecs, seed=1)
    return first, Model("grown", chosen, codecs, network)


@pytest.mark.parametrize("name", MODELS)
def test_old_outputs_score_as_before_but_for_what_new_pieces_take(name: str, tmp_path: Path) -> None:
    """log p'(y_t) = log p(y_t) + log(1 - p'(new pieces)), at every step of old pairs; ids of pieces stay."""
    first, larger = grown(name, tmp_path)
    sides = {"source", "target"} | ({"tags"} if "tags" in name else set())
    assert added(first.codecs, larger.codecs) == dict.fromkeys(sides, 3) | ({"tags": 1} if "tags" in sides else {})
    old, new = first.codecs.target.vocabulary, larger.codecs.target.vocabulary
    assert list(new.ordinary)[: len(old.ordinary)] == list(old.ordinary)
    assert set(new.ordinary) - set(old.ordinary) == set("xyz")

    inputs = {"source": "abcd", "tags": "s"} if "tags" in name else "abcd"
    results = []
    for model in (first, larger):
        batch = collate_pairs([model.codecs.pair(inputs, "dcba")[0]])
        with torch.no_grad():
            results.append(model.network.head.log_probs(*model.network.forced(batch))[0].double())  # T V
    before, after = results
    known = torch.tensor([i for i, piece in enumerate(new._shown) if i < len(SPECIALS) or piece in old._shown])
    free = 1 - after.exp()[:, [i for i in range(len(new)) if i not in known.tolist()]].sum(1, keepdim=True)
    assert bool((free < 1 - 1e-3).all())  # new pieces can be said
    torch.testing.assert_close(after[:, known], before + free.log(), atol=1e-5, rtol=0)


def test_new_rows_are_near_the_mean_and_differ(tmp_path: Path) -> None:
    first, larger = grown("plain", tmp_path)
    old = first.network.embeddings()["source"].table
    new = larger.network.embeddings()["source"].table
    fresh = new[len(old) :]
    mean, deviation = old[len(SPECIALS) :].mean(0), old[len(SPECIALS) :].std(0)
    assert torch.equal(new[: len(old)], old)
    assert bool(((fresh - mean).abs() < 0.6 * deviation).all())
    assert len({tuple(row.tolist()) for row in fresh}) == len(fresh) == 3


def test_new_pieces_are_learned(tmp_path: Path) -> None:
    train(recipe(write(tmp_path / "old.tsv", OLD)), tmp_path / "first")
    training = {"steps": 120, "extend_vocabulary": True, "optimiser": {"kind": "adam", "lr": 0.03}}
    chosen = recipe(write(tmp_path / "new.tsv", LATER, 400), training=training)
    told: list[str] = []
    whole = train(chosen, tmp_path / "second", wishes=Wishes(start=tmp_path / "first", tell=told.append))
    assert "source: 3 new pieces" in told
    outputs = [prediction.text for prediction in whole.model(["xy", "zax", "yz"])]
    assert sum(letter in "xyz" for output in outputs for letter in output) >= 3


def tagged(folder: Path, use: str, **training: object) -> Recipe:
    path = write(folder / "tagged.tsv", LATER, 400, tags="pq")
    data = {"train": {"path": str(path), "extras": {"tags": 2}}, "split": {"dev": 0.1, "test": 0.1}}
    return recipe(path, data=data, extras={"tags": {"use": use}}, training={"steps": 3, **training})


def test_a_run_without_tags_goes_on_with_tags(tmp_path: Path) -> None:
    """Tags are pieces behind the source's: what was read before is read as before, and a tag is told from another."""
    first = train(recipe(write(tmp_path / "old.tsv", OLD)), tmp_path / "first").model
    told: list[str] = []
    wishes = Wishes(start=tmp_path / "first", tell=told.append)
    second = train(
        tagged(tmp_path, "prefix", steps=1, extend_vocabulary=True), tmp_path / "second", wishes=wishes
    ).model
    assert "tags: 2 new pieces" in told
    old, new = (model.network.embeddings()["source"].table for model in (first, second))
    assert len(new) == len(old) + 3 + 2  # letters, tags
    assert bool((new[len(SPECIALS) : len(old)] - old[len(SPECIALS) :]).abs().max() < 0.05)  # one step away
    one, other = (second.score([({"source": "abc", "tags": tag}, "cba")])[0].log_prob for tag in "pq")
    assert one != other


@pytest.mark.parametrize(("use", "extends"), [("prefix", False), ("encoder", True)])
def test_other_new_extras_are_refused_with_what_may_be_new(use: str, extends: bool, tmp_path: Path) -> None:
    train(recipe(write(tmp_path / "old.tsv", OLD)), tmp_path / "first")
    with pytest.raises(seqloom.SeqloomError, match=r"use: prefix.*extend_vocabulary"):
        train(
            tagged(tmp_path, use, extend_vocabulary=extends),
            tmp_path / "second",
            wishes=Wishes(start=tmp_path / "first"),
        )


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    train(recipe(write(tmp_path / "old.tsv", OLD)), tmp_path / "first")
    chosen = recipe(write(tmp_path / "new.tsv", LATER), training={"steps": 6, "extend_vocabulary": True})
    whole = train(chosen, tmp_path / "whole", wishes=Wishes(start=tmp_path / "first"))
    asked = iter(range(9))
    begun = Wishes(start=tmp_path / "first", stop=lambda: "interrupted" if next(asked) == 3 else None)
    assert train(chosen, tmp_path / "pieces", wishes=begun).reason == "interrupted"
    resumed = train(chosen, tmp_path / "pieces")
    for (name, one), (_, other) in zip(
        whole.model.network.state_dict().items(), resumed.model.network.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name


def test_fixed_pieces_are_refused(tmp_path: Path) -> None:
    tokenizer = {"tokenizer": {"kind": "bpe", "size": 12}}
    old, new = write(tmp_path / "old.tsv", OLD), write(tmp_path / "new.tsv", LATER)
    train(recipe(old, target=tokenizer), tmp_path / "first")
    chosen = recipe(new, target=tokenizer, training={"steps": 2, "extend_vocabulary": True})
    with pytest.raises(seqloom.SeqloomError, match="target: the pieces of a bpe tokenizer are fixed") as refusal:
        train(chosen, tmp_path / "second", wishes=Wishes(start=tmp_path / "first"))
    assert refusal.value.code == "E_RECIPE"
    assert "leave extend_vocabulary out" in refusal.value.fix


def test_without_a_run_to_begin_from_it_is_refused(tmp_path: Path) -> None:
    chosen = recipe(write(tmp_path / "new.tsv", LATER), training={"steps": 2, "extend_vocabulary": True})
    with pytest.raises(seqloom.SeqloomError, match="no vocabulary to extend") as refusal:
        train(chosen, tmp_path / "run")
    assert (refusal.value.code, refusal.value.where) == ("E_RECIPE", "training.extend_vocabulary")


def test_bytes_need_no_new_pieces(tmp_path: Path) -> None:
    tokenizer = {"tokenizer": "bytes"}
    train(recipe(write(tmp_path / "old.tsv", OLD), source=tokenizer), tmp_path / "first")
    told: list[str] = []
    chosen = recipe(
        write(tmp_path / "new.tsv", LATER), source=tokenizer, training={"steps": 2, "extend_vocabulary": True}
    )
    train(chosen, tmp_path / "second", wishes=Wishes(start=tmp_path / "first", tell=told.append))
    assert "source: 0 new pieces" in told
    assert "target: 3 new pieces" in told
