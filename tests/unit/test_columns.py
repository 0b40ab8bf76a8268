"""Batches made of columns are those that are made pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import Batch, Tokens
from seqloom.data.batching import collate_pairs
from seqloom.data.columns import Columns, Numbers, Picked, Ragged

SEQUENCES = st.lists(st.lists(st.integers(6, 60_000), max_size=6), min_size=1, max_size=8)


def ragged(sequences: list[list[int]], dtype: type[np.integer] = np.uint16) -> Ragged:
    flat = np.array([token for sequence in sequences for token in sequence], dtype)
    return Ragged(flat, np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])]).astype(np.int64))


def same(one: Batch, other: Batch) -> None:
    assert one.sources.keys() == other.sources.keys()
    parts = [(one.sources[name], other.sources[name]) for name in one.sources] + [(one.target, other.target)]
    for here, there in parts:
        assert isinstance(here, Tokens)
        assert isinstance(there, Tokens)
        assert torch.equal(here.ids, there.ids)
        assert torch.equal(here.mask, there.mask)
        assert here.ids.dtype == there.ids.dtype
    assert list(one.examples) == list(other.examples)
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None and other.weights is not None:
        torch.testing.assert_close(one.weights, other.weights)


@given(data=st.data(), sources=SEQUENCES, weighted=st.sampled_from(["none", "ones", "several"]), extra=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_batch_of_columns_is_that_of_its_pairs(
    data: st.DataObject, sources: list[list[int]], weighted: str, extra: bool
) -> None:
    count = len(sources)
    targets = data.draw(st.lists(st.lists(st.integers(6, 99), max_size=5), min_size=count, max_size=count))
    weights = {"none": None, "ones": np.ones(count), "several": np.linspace(0.0, 2.0, count)}[weighted]
    extras = {"tags": ragged([target[:2] for target in targets])} if extra else {}
    columns = Columns(ragged(sources), ragged(targets, np.int32), np.arange(count) + 7, extras, weights)
    rows: Numbers = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=9)), dtype=np.int64)
    picked = Picked(columns, rows)
    assert len(picked) == len(rows)
    same(collate_pairs(picked), collate_pairs(list(picked)))
    same(collate_pairs(picked[1:] or picked), collate_pairs(list(picked[1:] or picked)))


def test_rows_of_ragged_sequences_are_those_rows() -> None:
    whole = ragged([[1, 2, 3], [], [4], [5, 6]])
    part = whole.rows(np.array([3, 1, 0, 3]))
    assert [part[i].tolist() for i in range(len(part))] == [[5, 6], [], [1, 2, 3], [5, 6]]
    assert part.lengths.tolist() == [2, 0, 3, 2]
    with pytest.raises(IndexError):
        part[4]
