"""Nobody looks for garbage while a prediction is made, and whoever had switched that off finds it off."""

from __future__ import annotations

import gc

import pytest

from seqloom.heap import undisturbed


@pytest.mark.parametrize("looked", [True, False])
def test_the_collector_rests_and_is_left_as_it_was(looked: bool) -> None:
    was = gc.isenabled()
    (gc.enable if looked else gc.disable)()
    try:
        with pytest.raises(ValueError), undisturbed():
            assert not gc.isenabled()
            with undisturbed():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == looked
    finally:
        (gc.enable if was else gc.disable)()
