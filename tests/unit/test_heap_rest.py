"""Nobody looks for garbage while a prediction is made, and whoever had switched that off finds it off."""

from __future__ import annotations

import gc

import pytest

from seqloom.heap import without_collector


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
