"""Frames: how a .npy file is read, normalised, stacked, kept in a corpus, padded and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.batch import Frames
from seqloom.data.arrays import Header
from seqloom.data.batching import collate_pairs
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import CODECS, Codecs
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.frames import FramesCodec
from seqloom.data.readers import dataset_settings, read
from seqloom.errors import SeqloomError
from seqloom.probe.bins import averaged, bins_of, labels_of, summed
from seqloom.recipe import Recipe
from signals import write_levels


def saved(path: Path, values: np.ndarray) -> str:
    np.save(path, values)
    return str(path)


def codec(paths: list[str], **settings: object) -> FramesCodec:
    return FramesCodec.train(FramesCodec.Settings.model_validate(settings), lambda: paths, seed=1)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i1", "i8", "u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_kind_of_number_is_read(dtype: str, order: str, tmp_path: Path) -> None:
    values = np.asarray(np.arange(12).reshape(4, 3), dtype=dtype, order=order)  # type: ignore[call-overload]
    found = Header.read(saved(tmp_path / "x.npy", values)).values()
    assert found.dtype == np.float32
    assert found.tolist() == np.arange(12).reshape(4, 3).tolist()


def test_mean_and_deviation_are_those_of_all_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.normal([1e4, -2, 0], [3, 0.01, 1], (length, 3)) for length in (5, 1, 40)]
    for part in parts:
        part[:, 2] = 7  # a constant feature must not be divided by nothing
    paths = [saved(tmp_path / f"{i}.npy", part) for i, part in enumerate(parts)]
    learned, all_frames = codec(paths), np.concatenate(parts).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(learned.mean, all_frames.mean(0), rtol=1e-9)
    np.testing.assert_allclose(learned.deviation[:2], all_frames.std(0)[:2], rtol=1e-6)
    assert learned.deviation[2] == 1
    cut = np.concatenate([learned.cut(path) for path in paths])
    np.testing.assert_allclose(cut.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(cut.std(0), [1, 1, 0], atol=1e-3)


def test_each_by_itself_or_not_at_all(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert codec([path], normalise="each").cut(path).tolist() == [[-1, 0], [1, 0]]
    assert codec([path], normalise="none").cut(path).tolist() == [[1, 5], [3, 5]]


def test_stacked_frames_are_fewer_and_longer(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.arange(1, 11.0).reshape(5, 2))
    one = codec([path], normalise="none", stack=2, rate=10)
    assert one.cut(path).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]
    assert (one.size, one.length(path)) == (4, 3)
    assert one.labels(one.cut(path)) == ["0.00s", "0.20s", "0.40s"]
    assert codec([path]).labels(one.cut(path)) == ["0", "1", "2"]


def test_a_codec_survives_its_folder(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.random.default_rng(2).normal(3, 2, (9, 4)))
    one = codec([path])
    one.save(tmp_path)
    again = CODECS["frames"].load(one.settings, tmp_path)
    assert again.learned == one.learned
    assert np.array_equal(again.numbers(again.cut(path)), one.cut(path))
    assert not one.difference(again)
    assert "stack differs" in one.difference(codec([path], stack=2))
    (tmp_path / "frames.json").write_text('{"mean": [1.0], "deviation": [0.0]}')
    with pytest.raises(SeqloomError, match=r"E_BUNDLE.*means and deviations"):
        FramesCodec.load(one.settings, tmp_path)


@pytest.fixture
def codecs(tmp_path: Path) -> tuple[Codecs, Path]:
    listed = write_levels(tmp_path, count=12)
    examples = list(read(dataset_settings(str(listed)), in_files=True))
    source = codec([example.source for example in examples])
    target = TextCodec.train(
        TextCodec.Settings.model_validate({"tokenizer": "symbols"}), lambda: [e.target for e in examples], seed=1
    )
    return Codecs(source, target, labels=True, in_place=True), listed


def test_a_corpus_gives_back_what_was_read(codecs: tuple[Codecs, Path], tmp_path: Path) -> None:
    both, listed = codecs
    examples = list(read(dataset_settings(str(listed)), in_files=True))
    corpus, counts = Corpus.build(examples, both, tmp_path / "corpus", Limits(max_source=18))
    long = sum(both.source.length(example.source) > 18 for example in examples)
    assert 0 < long == counts.long_source
    assert counts.kept == len(corpus) == 12 - long
    assert counts.source_unknown == 0
    kept = [example for example in examples if both.source.length(example.source) <= 18]
    for example, pair in zip(kept, Corpus.open(tmp_path / "corpus"), strict=True):  # type: ignore[call-overload]
        assert np.array_equal(pair.source, both.source.numbers(both.source.cut(example.source)))
    assert corpus.lengths()[0].tolist() == [both.source.length(example.source) for example in kept]


def test_frames_end_with_zeros_as_texts_end_with_eos(codecs: tuple[Codecs, Path]) -> None:
    both, listed = codecs
    examples = list(read(dataset_settings(str(listed)), in_files=True))[:3]
    pairs = [both.pair(example.inputs, example.target)[0] for example in examples]
    batch = collate_pairs(pairs)
    source = batch.sources["source"]
    assert isinstance(source, Frames)
    assert source.lengths.tolist() == [len(pair.source) + 1 for pair in pairs]
    for row, pair in enumerate(pairs):
        size = len(pair.source)
        assert torch.equal(source.values[row, :size], torch.from_numpy(np.array(pair.source)))
        assert not source.values[row, size:].any()


def test_where_a_list_lies_changes_no_key(tmp_path: Path) -> None:
    for place in ("here", "there"):
        write_levels(tmp_path / place, count=3)
    here, there = (
        list(read(dataset_settings(str(tmp_path / p / "levels.tsv")), in_files=True)) for p in ("here", "there")
    )
    assert [one.key for one in here] == [one.key for one in there]  # so the same are held out
    assert here[0].source == str(tmp_path / "here" / "levels" / "0.npy")
    assert here[0].shown == "levels/0.npy"


def test_bins_keep_sums_and_begin_where_they_say() -> None:
    weights = np.random.default_rng(1).random((2, 3, 9)).astype(np.float32)  # 7 frames, an end and an extra's
    places = bins_of(7, 9, most=3)
    assert places.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 4]
    np.testing.assert_allclose(summed(weights, places).sum(-1), weights.sum(-1), rtol=1e-6)
    np.testing.assert_allclose(summed(weights, places)[..., 0], weights[..., :3].sum(-1), rtol=1e-6)
    assert labels_of("abcdefghi", places) == ("a", "d", "f", "h", "i")
    between = np.random.default_rng(2).random((1, 9, 9)).astype(np.float32)
    between /= between.sum(-1, keepdims=True)
    np.testing.assert_allclose(averaged(between, places).sum(-1), 1, rtol=1e-5)
    assert bins_of(2, 3, most=20).tolist() == [0, 1, 2]


def recipe(**parts: object) -> Recipe:
    base = {"data": {"train": "x.tsv"}, "source": "frames", "training": {"steps": 1}}
    return Recipe.model_validate({**base, **parts})


def test_a_source_of_frames_brings_its_front_end() -> None:
    for model in (None, {}, {"source_embedding": {"width": 7}}, "encoder_decoder"):
        chosen = recipe(**({} if model is None else {"model": model})).model
        assert chosen.embeddings["source"].kind == "projection"  # type: ignore[attr-defined]
    assert recipe(model={"source_embedding": {"width": 7}}).model.embeddings["source"].width == 7  # type: ignore[attr-defined]
    assert recipe().data.in_files
    assert Recipe.model_validate(recipe().model_dump(mode="json")) == recipe()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"model": {"source_embedding": "learned"}}, "reads text, and the source is frames; use: projection"),
        ({"source": {"tokenizer": "words"}, "model": {"source_embedding": "projection"}}, "the source is text"),
        ({"model": "language"}, "no vocabulary to share"),
        ({"model": {"kind": "joint", "decoder": "rnn"}}, "no vocabulary to share"),
        ({"model": {"head": "copy"}}, "copy repeats tokens"),
        ({"model": {"encoder": "spelled"}}, "words by their letters"),
        ({"task": {"source_noise": {"mask": 0.1}}}, "frames are none"),
        ({"data": {"train": {"path": "x.tsv", "extras": {"t": 2}}}, "extras": {"t": {}}}, "use: encoder"),
        (
            {"data": {"train": {"path": "x.tsv", "extras": {"t": 2}}}, "extras": {"t": {"use": "shared"}}},
            "use: encoder",
        ),
        ({"source": {"tokenizer": "words"}, "data": {"train": "x.tsv", "in_files": True}}, "data.in_files"),
        ({"source": "frame"}, "text, frames"),
        ({"source": {"kind": "frames", "stack": 0}}, "stack"),
    ],
)
def test_what_frames_cannot_do_is_refused_in_the_recipe(parts: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe(**parts)
