"""What the interpreter does beside the work is changed for the work alone; who comes after finds it as it was."""

from __future__ import annotations

import gc
import sys

import pytest

from seqloom.api.workers import ahead
from seqloom.interpreter import TURN, short_turns, without_collector


@pytest.mark.parametrize("looked", [True, False])
def test_the_collector_rests_and_is_left_as_it_was(looked: bool) -> None:
    was = gc.isenabled()
    (gc.enable if looked else gc.disable)()
    try:
        with without_collector():
            assert not gc.isenabled()
            with without_collector():
                pass
            assert not gc.isenabled(), "who is inside decides nothing for who is around"
        assert gc.isenabled() == looked
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("usual", [5e-3, 1e-5])
def test_turns_are_short_and_left_as_they_were(usual: float) -> None:
    was = sys.getswitchinterval()
    sys.setswitchinterval(usual)
    try:
        with short_turns():
            assert sys.getswitchinterval() == pytest.approx(min(usual, TURN)), "who has shorter ones keeps them"
        assert sys.getswitchinterval() == pytest.approx(usual)
    finally:
        sys.setswitchinterval(was)


def test_whoever_reads_answers_gives_way_to_whoever_finds_them() -> None:
    was = sys.getswitchinterval()
    answers = ahead(lambda question: (question, sys.getswitchinterval()), [1, 2, 3])
    number, turn = next(answers)
    assert number == 1
    assert turn == pytest.approx(TURN)
    answers.close()  # whoever has seen enough leaves everything as it was
    assert sys.getswitchinterval() == was
