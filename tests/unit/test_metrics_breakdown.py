"""Breakdowns: the parts make up the whole, and each sentence lands where it belongs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Metric
from seqloom.metrics.breakdown import (
    Wins,
    by_length,
    largest_differences,
    length_edges,
    wins_and_losses,
    word_accuracy_by_frequency,
)
from seqloom.metrics.calibration import reliability
from seqloom.metrics.plots import plot_by_length, plot_frequency, plot_reliability


def build(raw: object) -> Metric:
    return METRICS.build(METRICS.settings(raw))


def test_buckets_hold_the_right_sentences_and_leave_none_out() -> None:
    metric = build("exact")
    lengths = [0, 10, 11, 20, 60, 61, 200]
    predictions = ["r", "w", "r", "r", "w", "r", "w"]
    buckets = by_length(metric, predictions, [["r"]] * 7, lengths, edges=(10, 20, 60))
    assert [(b.label, b.count, b.value) for b in buckets] == [
        ("0-10", 2, 50.0),
        ("11-20", 2, 100.0),
        ("21-60", 1, 0.0),
        ("61+", 2, 50.0),
    ]
    assert all(b.interval.low <= b.value <= b.interval.high for b in buckets)


def test_empty_buckets_are_left_out() -> None:
    buckets = by_length(build("exact"), ["a", "b"], [["a"], ["b"]], [5, 55], edges=(10, 20, 60))
    assert [bucket.label for bucket in buckets] == ["0-10", "21-60"]


def test_default_ends_reach_60_for_sentences_and_are_finer_for_words() -> None:
    assert length_edges(range(1, 80)) == (10, 20, 30, 40, 50, 60)
    assert length_edges([7] * 100) == (2, 4, 6, 8, 10, 12)
    assert length_edges([7] * 1000 + [500]) == (2, 4, 6, 8, 10, 12)  # one outlier does not decide
    assert length_edges([]) == (2, 4, 6, 8, 10, 12)


@pytest.mark.parametrize("edges", [(), (5, 5), (9, 3), (-1, 2)])
def test_ends_that_do_not_rise_are_refused(edges: tuple[int, ...]) -> None:
    with pytest.raises(SeqloomError) as caught:
        by_length(build("exact"), ["a"], [["a"]], [1], edges)
    assert caught.value.code == "E_USAGE"


def test_lengths_must_match_the_outputs() -> None:
    with pytest.raises(SeqloomError) as caught:
        by_length(build("exact"), ["a"], [["a"]], [1, 2])
    assert caught.value.code == "E_ALIGN"


def test_word_accuracy_is_clipped_per_sentence_and_bucketed_by_training_count() -> None:
    counts = {"the": 50, "cat": 2}
    predictions = [["the", "the", "the", "cat"], ["dog"]]
    references = [["the", "the", "zebra"], ["the", "cat"]]
    unseen, once_or_twice, often = word_accuracy_by_frequency(predictions, references, counts, edges=(0, 2))
    # unseen: zebra wanted, dog produced; cat: produced in one sentence, wanted in the other; the: 2 of 3 wanted, 2 of 3
    assert (unseen.label, unseen.wanted, unseen.produced, unseen.matched) == ("0", 1, 1, 0)
    assert (once_or_twice.label, once_or_twice.wanted, once_or_twice.produced, once_or_twice.matched) == (
        "1-2",
        1,
        1,
        0,
    )
    assert (often.label, often.wanted, often.produced, often.matched) == ("3+", 3, 3, 2)
    assert often.recall == often.precision == often.f1 == pytest.approx(200 / 3)
    assert unseen.f1 == 0


def test_all_words_land_in_exactly_one_bucket() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(50)]
    counts = {word: int(rng.integers(0, 3000)) for word in words}
    sentences = [list(rng.choice(words, 10)) for _ in range(20)]
    rows = word_accuracy_by_frequency(sentences, sentences, counts)
    assert sum(row.wanted for row in rows) == sum(row.produced for row in rows) == 200
    assert all(row.f1 == 100 for row in rows if row.wanted)


@pytest.mark.parametrize("kind", ["exact", "string_error"])  # one better when higher, one when lower
def test_wins_know_which_direction_is_better(kind: str) -> None:
    metric = build(kind)
    references = [["r"]] * 4
    stats_a = metric.statistics(["r", "w", "r", "w"], references)
    stats_b = metric.statistics(["w", "w", "w", "r"], references)
    assert wins_and_losses(metric, stats_a, stats_b) == Wins(a=2, b=1, ties=1)


def test_the_largest_differences_come_first_and_ties_are_left_out() -> None:
    metric = build("wer")
    references = [["a b c d"]] * 4
    stats_a = metric.statistics(["a b c d", "a b c d", "x x x x", "a b c d"], references)
    stats_b = metric.statistics(["a b c x", "a b c d", "a b c d", "x x c d"], references)
    found = largest_differences(metric, stats_a, stats_b)
    assert [(item.index, item.difference) for item in found] == [(2, -100), (3, 50), (0, 25)]
    assert len(largest_differences(metric, stats_a, stats_b, count=1)) == 1


def test_plots_are_written(tmp_path: Path) -> None:
    buckets = by_length(build("exact"), ["a", "b"], [["a"], ["x"]], [5, 55], edges=(10, 60))
    plot_by_length({"greedy": buckets, "beam": buckets[:1]}, "exact match", tmp_path / "length.png")
    plot_reliability(reliability([0.1, 0.9, 1.0], [False, True, True]), 0.05, tmp_path / "reliability.png")
    rows = word_accuracy_by_frequency([["a"]], [["a"]], {"a": 3})
    plot_frequency({"greedy": rows}, tmp_path / "frequency.svg")
    assert (tmp_path / "length.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "frequency.svg").read_bytes()


def test_a_plot_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    for path, code in (tmp_path / "missing" / "x.png", "E_FILE"), (tmp_path / "x.nonsense", "E_USAGE"):
        with pytest.raises(SeqloomError) as caught:
            plot_reliability([], 0.0, path)
        assert caught.value.code == code


def test_plots_without_matplotlib_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(SeqloomError, match=r"pip install 'seqloom\[plot\]'") as caught:
        plot_reliability([], 0.0, tmp_path / "x.png")
    assert caught.value.code == "E_EXTRA"
