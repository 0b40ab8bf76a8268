"""How metrics cut texts, and what that leaves of punctuation."""

from __future__ import annotations

import pytest

from seqloom.metrics.cutting import Cut, cutter, grams

TEXT = "It isn't cheap (£10.50, or 20-25), kid-friendly..."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("blank", ["It", "isn't", "cheap", "(£10.50,", "or", "20-25),", "kid-friendly..."]),
        ("words", ["It", "isn", "t", "cheap", "10", "50", "or", "20", "25", "kid", "friendly"]),
        (
            "13a",
            [
                "It",
                "isn't",
                "cheap",
                "(",
                "£10.50",
                ",",
                "or",
                "20",
                "-",
                "25",
                ")",
                ",",
                "kid-friendly",
                ".",
                ".",
                ".",
            ],
        ),
        ("captions", ["It", "is", "n't", "cheap", "£", "10.50", "or", "20-25", "kid-friendly"]),
    ],
)
def test_each_way(name: Cut, words: list[str]) -> None:
    assert cutter(name)(TEXT) == words
    assert cutter(name)("") == []


def test_curly_signs_are_signs_too() -> None:
    assert cutter("captions")("“The Mill’s” café") == ["The", "Mill", "'s", "café"]
    assert cutter("words")("Größe_2 ähnlich") == ["Größe", "2", "ähnlich"]


def test_grams_of_fewer_words_are_none() -> None:
    assert grams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert grams(["a"], 2) == []
