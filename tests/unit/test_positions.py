"""Positions against their formulas: waves entry by entry, and turns that leave nothing but the distance."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seqloom.nn.entrance import from_the_start
from seqloom.nn.positions import Formula, Nowhere, Rotary, Sinusoidal, turned

CLOSE = {"atol": 1e-10, "rtol": 1e-10}


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def waves(length: int, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)), entry by entry."""
    table = torch.empty(length, width, dtype=torch.float64)
    for place in range(length):
        for i in range(width):
            angle = place / 10_000 ** ((i - i % 2) / width)
            table[place, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return table


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions_are_their_formula(width: int) -> None:
    positions, x = Sinusoidal(Sinusoidal.Settings(), width=width), some(2, 5, width)
    torch.testing.assert_close(positions.added(x, from_the_start(5, x.device), 5), x + waves(5, width), **CLOSE)
    places = torch.tensor([[3, 4], [0, 9]])  # rows at places of their own
    torch.testing.assert_close(positions.added(x[:, :2], places, 10), x[:, :2] + waves(10, width)[places], **CLOSE)


@pytest.mark.parametrize("width", [2, 6, 7])
@pytest.mark.parametrize("reaching", [False, True])
def test_waves_laid_out_in_halves_are_their_formula(width: int, reaching: bool) -> None:
    settings = Sinusoidal.Settings(layout="halves", reaching=reaching)
    most, half = (max(1, width - 2) if reaching else width), (width + 1) // 2
    table = torch.empty(5, width, dtype=torch.float64)
    for place in range(5):
        for i in range(width):
            angle = place / 10_000 ** (2 * (i % half) / most)
            table[place, i] = math.cos(angle) if i >= half else math.sin(angle)
    x = some(2, 5, width)
    found = Sinusoidal(settings, width=width).added(x, from_the_start(5, x.device), 5)
    torch.testing.assert_close(found, x + table, **CLOSE)


def test_half_precision_keeps_exact_angles() -> None:
    positions = Sinusoidal(Sinusoidal.Settings(), width=8)
    zeros, place = torch.zeros(1, 1, 8, dtype=torch.bfloat16), torch.tensor([[1001]])  # bfloat16 knows 1000 and 1004
    found = positions.added(zeros, place, 1002)
    torch.testing.assert_close(found.double(), waves(1002, 8)[None, -1:], atol=4e-3, rtol=0)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    positions, query, key = Rotary(Rotary.Settings(), width=6), some(1, 1, 6), some(1, 1, 6, seed=1)

    def score(p: int, q: int) -> float:
        def at(x: Tensor, place: int) -> Tensor:
            turn = positions.turn(torch.tensor([[place]]), 6, x, place + 1)
            assert turn is not None
            return turned(x, turn)

        return float((at(query, p) * at(key, q)).sum())

    assert score(0, 0) == pytest.approx(float((query * key).sum()), abs=1e-12)
    for distance in range(-4, 5):
        scores = [score(place + distance, place) for place in (4, 5, 17, 230)]
        assert scores == pytest.approx([scores[0]] * 4, abs=1e-10)
    assert len({round(score(place, 0), 9) for place in range(6)}) == 6


def test_turning_keeps_lengths_and_serves_all_heads_alike() -> None:
    x, places = some(2, 3, 2, 4, 6), torch.tensor([[0, 1, 2], [5, 6, 7]])  # N T (q, k) H d
    turn = Rotary(Rotary.Settings(), width=24).turn(places, 6, x, int(places.max()) + 1)
    assert turn is not None
    found = turned(x, turn)
    torch.testing.assert_close(found.norm(dim=-1), x.norm(dim=-1), **CLOSE)
    torch.testing.assert_close(found[:, :, 1, 2], turned(x[:, :, 1, 2], turn), **CLOSE)
    torch.testing.assert_close(found[0, 0], x[0, 0])  # place 0 is not turned


def test_no_places_change_nothing() -> None:
    x = some(2, 5, 6)
    none = Nowhere(Nowhere.Settings(), width=6)
    assert torch.equal(none.added(x, from_the_start(5, x.device), 5), x)
    assert none.turn(from_the_start(5, x.device), 6, x, 5) is None


@pytest.mark.parametrize("positions", [Sinusoidal(Sinusoidal.Settings(), width=6), Rotary(Rotary.Settings(), width=24)])
def test_a_table_says_what_the_formula_says(positions: Formula) -> None:
    """To the bit, also where rows stand at places of their own; and it is in nobody's way who learns."""
    places, like = torch.tensor([[0, 3, 40], [7, 7, 1]]), torch.randn(2, 3, 6)
    with torch.inference_mode():
        assert torch.equal(positions.waves(places, 6, like, 41), positions.drawn(places, 6, like))
        assert torch.equal(positions.waves(places[:1], 6, like, 41), positions.drawn(places[:1], 6, like))
    with torch.no_grad():
        assert torch.equal(positions.waves(places, 6, like, 41), positions.drawn(places, 6, like))
    learned = like.requires_grad_()
    (learned * positions.waves(places, 6, like, 41)[..., :6]).sum().backward()
    assert learned.grad is not None
