"""The numbers of `seqloom demo digits`: said as people say them, drawn the same every time, and honestly split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqloom.api.demos import digits
from seqloom.api.demos.digits import (
    DIGITS,
    GAP,
    HEIGHT,
    LARGE,
    SIZES,
    WIDTH,
    Number,
    handwriting,
    in_words,
    lines,
    numbers,
)
from seqloom.errors import SeqloomError


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (7, "seven"),
        (13, "thirteen"),
        (20, "twenty"),
        (42, "forty two"),
        (100, "one hundred"),
        (407, "four hundred seven"),
        (999, "nine hundred ninety nine"),
    ],
)
def test_numbers_in_words(number: int, words: str) -> None:
    assert in_words(number) == words


def test_every_number_is_said_in_its_own_way() -> None:
    assert len({in_words(number) for number in range(1000)}) == 1000


def test_numbers_of_the_test_are_not_in_training() -> None:
    values = {part: {number.value for number in numbers(part)} for part in SIZES}
    assert not values["test"] & (values["train"] | values["dev"])
    assert {part: len(list(numbers(part))) for part in SIZES} == SIZES
    assert list(numbers("dev")) == list(numbers("dev"))


def test_lines_say_what_is_drawn() -> None:
    assert [line[1] for line in lines("dev")] == [in_words(number.value) for number in numbers("dev")]


def test_no_picture_of_a_digit_is_in_two_sets() -> None:
    pytest.importorskip("sklearn")
    seen = {part: {picture.tobytes() for kind in handwriting(part) for picture in kind} for part in SIZES}
    assert not seen["train"] & (seen["test"] | seen["dev"])
    assert not seen["test"] & seen["dev"]
    assert sum(len(kind) for part in SIZES for kind in handwriting(part)) == 1797


def test_three_digits_fit_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    for seed in range(20):
        Number(888, "train", seed).draw(tmp_path / "x.png")
        ink = 255 - np.asarray(Image.open(tmp_path / "x.png"))
        assert ink.shape == (HEIGHT, WIDTH)
        assert (ink > 0).any(0).sum() > 3 * 5  # columns
    assert DIGITS * (LARGE[1] + GAP[1]) <= WIDTH


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(digits, "import_module", missing)
    digits._every_digit.cache_clear()
    with pytest.raises(SeqloomError, match="scikit-learn") as raised:
        digits._every_digit()
    assert raised.value.code == "E_EXTRA"
