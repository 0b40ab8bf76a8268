"""The page of a gain: all numbers are on it, texts stay texts, and its axis has round numbers around the scores."""

from __future__ import annotations

import pytest

from seqloom.probe.gain import Rung, gain_page, ticks

RUNGS = [
    Rung(0.01, 125, (71.2, 1.1), (78.9, 0.8), 7.7, (6.9, 8.4), True),
    Rung(1, 12_544, (94.4, 0.0), (94.5, 0.0), 0.1, (-0.1, 0.3), False),
]


def test_all_numbers_are_there_and_no_script() -> None:
    page = gain_page("<b>gain</b>", "accuracy <i>", RUNGS, ["a & b"])
    for told in (
        "71.20 ± 1.10",
        "78.90 ± 0.80",
        "+7.70",
        "+6.90 to +8.40",
        "12,544",
        "94.40",
        "-0.10 to +0.30",
        "a &amp; b",
    ):
        assert told in page
    assert "<b>gain" not in page
    assert "<i>" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(("low", "high"), [(70.1, 94.6), (0.0, 0.0), (5.0, 5.0), (-3.0, 0.2), (0.001, 0.0012)])
def test_ticks_are_round_and_around(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert high <= found[-1]
    assert 2 <= len(found) <= 7


def test_one_portion_alone() -> None:
    assert "125 pairs" in gain_page("t", "accuracy", RUNGS[:1])
