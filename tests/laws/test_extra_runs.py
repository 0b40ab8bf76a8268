"""Laws 4, 9 and 10 on whole runs with further sources, mixed corpora, weights, alignments and copies."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch
from test_runs import log_of, recipe, stopping_after

import seqloom
from seqloom.api.load import find_bundle
from seqloom.api.train import Run, Wishes, train
from seqloom.bundle import open_bundle
from seqloom.recipe import Recipe

ENDINGS = {"PST": "ed", "PRS;3": "s", "GER": "ing"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.tsv`: stem, form, tags, weight, alignment; `b.tsv`: stem, form, tags of fewer and other stems."""
    place, rng = tmp_path_factory.mktemp("data"), random.Random(1)
    stems = sorted({"".join(rng.choice("abcd") for _ in range(rng.randint(2, 5))) for _ in range(120)})
    for name, chosen in (("a", stems[:70]), ("b", stems[70:85])):
        rows = [(stem, stem + ending, tags) for stem in chosen for tags, ending in ENDINGS.items()]
        lines = [f"{row[0]}\t{row[1]}\t{row[2]}\t{1 + i % 3}\t0-0\n" for i, row in enumerate(rows)]
        (place / f"{name}.tsv").write_text("".join(lines))
    return place


def rich(folder: Path, variant: str) -> Recipe:
    a = {"path": str(folder / "a.tsv"), "extras": {"tags": 2}}
    b = {"path": str(folder / "b.tsv"), "extras": {"tags": 2}}
    split = {"split": {"dev": 0.1, "test": 0.1}}
    encoder = {"tags": {"use": {"kind": "encoder", "embedding": {"width": 6}, "encoder": {"kind": "bag", "width": 6}}}}
    small = {"encoder": {"width": 8}, "decoder": {"width": 8, "dropout": 0.2}}
    bpe = {"tokenizer": {"kind": "bpe", "size": 20, "sampling": 0.3}}
    variants: dict[str, dict[str, object]] = {
        "prefix": {"data": {"train": a, **split}, "extras": {"tags": {}}},
        "encoder": {"data": {"train": a, **split}, "extras": encoder},
        "prefix, shared": {
            "data": {"train": a, **split},
            "extras": {"tags": {}},
            "model": {**small, "shared": True, "tied": True},
        },
        "weights and alignments": {
            "data": {"train": {**a, "weight": 3, "alignment": 4, "importance": 0.5}, **split},
            "extras": {"tags": {}},
        },
        "mixed by shares": {
            "data": {"train": [{**a, "share": 0.4}, {**b, "share": 0.6}], **split},
            "extras": {"tags": {}},
        },
        "mixed by temperature, bpe dropout": {
            "data": {"train": [a, {**b, "importance": 2.0}], "mixing": {"temperature": 5}, **split},
            "extras": encoder,
            "source": bpe,
            "target": bpe,
        },
        "copies": {
            "data": {"train": a, **split},
            "extras": {"tags": {}},
            "target": {"tokenizer": "characters", "vocabulary": {"max_size": 6}},
            "source": {"tokenizer": "characters", "vocabulary": {"max_size": 3}},
            "model": {**small, "head": "copy"},
        },
    }
    chosen = variants[variant]
    data = chosen.pop("data")
    return recipe(Path("unused"), data=data, **chosen)


VARIANTS = [
    "prefix",
    "encoder",
    "prefix, shared",
    "weights and alignments",
    "mixed by shares",
    "mixed by temperature, bpe dropout",
    "copies",
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_and_resumed_equals_uninterrupted(variant: str, folder: Path, tmp_path: Path) -> None:
    """Law 10, bit for bit; an epoch of these has fewer steps than the run, so several are planned."""
    chosen = rich(folder, variant)
    whole = train(chosen, tmp_path / "whole")
    pieces = Run(tmp_path / "pieces", "interrupted")
    sitting = 1
    while pieces.reason == "interrupted":
        pieces = train(chosen, tmp_path / "pieces", wishes=Wishes(stop=stopping_after(sitting)))
        sitting *= 2
    expected, found = (open_bundle(run.bundle).weights() for run in (whole, pieces))
    for key, tensor in expected.items():
        assert torch.equal(tensor, found[key]), key
    assert log_of(pieces) == log_of(whole)


@pytest.mark.parametrize("variant", ["prefix", "encoder", "copies"])
def test_a_bundle_elsewhere_predicts_and_scores_the_same(variant: str, folder: Path, tmp_path: Path) -> None:
    """Laws 4 and 9: moved, batched and alone; and what search found is what forced reading gives it."""
    run = train(rich(folder, variant), tmp_path / "run")
    moved = tmp_path / "moved"
    shutil.copytree(find_bundle(run.folder), moved)
    inputs = [{"source": text, "tags": tags} for text in ("abba", "dcd", "", "zab") for tags in (*ENDINGS, "", "ODD")]
    model = seqloom.load(moved)
    answers = model(inputs, beam=3)
    assert [one.as_dict() for one in answers] == [one.as_dict() for one in seqloom.load(run.folder)(inputs, beam=3)]
    for asked, answer in zip(inputs, answers, strict=True):
        alone = model(asked, beam=3)
        assert alone.text == answer.text
        assert alone.score == pytest.approx(answer.score, abs=1e-5)
        assert (answer.source, answer.extras) == (asked["source"], {"tags": asked["tags"]})
        if not answer.skipped and not answer.best.truncated:
            [scored] = model.score([(asked, answer.text)])
            if "<unk>" not in answer.text:
                assert scored.tokens[:-1] == answer.tokens
                assert scored.log_prob == pytest.approx(answer.best.log_prob, abs=1e-4)
            assert scored.extras == answer.extras


def test_every_file_of_a_mixture_is_watched(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "data"
    shutil.copytree(folder, mine)
    chosen = rich(mine, "mixed by shares")
    train(chosen, tmp_path / "run", wishes=Wishes(stop=stopping_after(2)))
    (mine / "b.tsv").write_text((mine / "b.tsv").read_text() + "zz\tzzs\tPRS;3\n")
    with pytest.raises(seqloom.SeqloomError, match=r"E_CHANGED.*b\.tsv"):
        train(chosen, tmp_path / "run")


def test_fine_tuning_needs_the_same_extras(folder: Path, tmp_path: Path) -> None:
    first = train(rich(folder, "prefix"), tmp_path / "first")
    with pytest.raises(seqloom.SeqloomError, match=r"E_RECIPE.*extras"):
        train(rich(folder, "encoder"), tmp_path / "second", wishes=Wishes(start=first.folder))
    again = train(rich(folder, "prefix"), tmp_path / "third", wishes=Wishes(start=first.folder))
    assert again.reason == "steps"


def test_an_ensemble_needs_the_same_extras(folder: Path, tmp_path: Path) -> None:
    from seqloom.api.load import load_ensemble

    runs = [train(rich(folder, variant), tmp_path / variant).folder for variant in ("prefix", "encoder")]
    with pytest.raises(seqloom.SeqloomError, match=r"E_BUNDLE.*one of them reads tags before the source"):
        load_ensemble(runs)
    two = load_ensemble([runs[1], runs[1]])
    asked = {"source": "abba", "tags": "PST"}
    assert two(asked).text == seqloom.load(runs[1])(asked).text
