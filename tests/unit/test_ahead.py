"""Working ahead changes neither order nor content, hands errors on in turn, and ends with whoever asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from seqloom.training.ahead import ahead


def alive() -> int:
    return sum(thread.name == "seqloom-ahead" for thread in threading.enumerate())


@pytest.mark.parametrize("count", [1, 3, 100])
def test_the_same_items_in_the_same_order(count: int) -> None:
    assert list(ahead(iter(range(50)), count)) == list(range(50))
    assert alive() == 0


def test_it_works_ahead_but_not_farther() -> None:
    asked: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for i in range(100):
            asked.append(i)
            if i == 2:
                third.set()
            yield i

    found = ahead(items(), 1)
    assert next(found) == 0
    assert third.wait(5), "one is in the queue, one in hand"
    assert len(asked) == 3
    found.close()  # type: ignore[attr-defined]
    assert alive() == 0


def test_an_error_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no second")

    found = ahead(items(), 4)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no second"):
        next(found)
    assert alive() == 0
