"""CTC against the sum over all paths, written out; and its share of the loss."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from seqloom.batch import Batch, Frames, Tokens
from seqloom.models.ctc import LOWEST, CtcPrefix, begun, continued
from seqloom.models.mixture import Mixture
from seqloom.models.model import EncoderDecoder
from seqloom.nn.ctc import BLANK, CTC, Ctc, ctc_nll
from seqloom.nn.tape import Tape
from seqloom.search.loop import search
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS
from seqloom.tasks.transduce import SearchSettings, Transduce, with_ctc

VOCABULARY = 9
SAYS = (6, 7, 8)  # the tokens that targets are made of


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    """Repetitions merged, then blanks taken out."""
    merged = [token for place, token in enumerate(path) if not place or token != path[place - 1]]
    return tuple(token for token in merged if token != BLANK)


def by_paths(log_probs: Tensor) -> dict[tuple[int, ...], float]:
    """P of every output: the sum over all paths of one source (S V)."""
    found: dict[tuple[int, ...], float] = {}
    probabilities = log_probs.exp()
    for path in product(range(log_probs.shape[1]), repeat=log_probs.shape[0]):
        chance = float(torch.stack([probabilities[place, token] for place, token in enumerate(path)]).prod())
        if chance:
            said = collapsed(path)
            found[said] = found.get(said, 0.0) + chance
    return found


def spoken(positions: int = 4, seed: int = 1, real: int | None = None) -> Tensor:
    """Log-probabilities of one source, 1 S V, of which `real` positions are its own."""
    torch.manual_seed(seed)
    ctc = Ctc(width=5, vocabulary=VOCABULARY).double()
    torch.nn.init.normal_(ctc.linear.weight)
    mask = (torch.arange(positions) < (real or positions))[None]
    return ctc(torch.randn(1, positions, 5, dtype=torch.float64), mask).detach()


@pytest.mark.parametrize("target", [(6,), (6, 7), (6, 6), (7, 8, 7), (6, 6, 7), (8, 8)])
@pytest.mark.parametrize("real", [3, 4])
def test_the_loss_is_the_sum_over_all_paths(target: tuple[int, ...], real: int) -> None:
    log_probs = spoken(real=real)
    expected = by_paths(log_probs[0, :real]).get(target, 0.0)
    values, fits = ctc_nll(log_probs, Tokens.pad([[*target, EOS]]))
    assert bool(fits[0]) == (expected > 0)
    if expected:
        torch.testing.assert_close(values[0].exp().reciprocal(), torch.tensor(expected, dtype=torch.float64))
    else:
        assert values[0] == 0


def test_padding_changes_nothing_and_the_end_is_never_said() -> None:
    torch.manual_seed(2)
    ctc = Ctc(width=5, vocabulary=VOCABULARY).double()
    states = torch.randn(1, 4, 5, dtype=torch.float64)
    alone = ctc(states, torch.ones(1, 4, dtype=torch.bool))
    junk = torch.cat([states, torch.full_like(states[:, :2], torch.nan)], dim=1)
    padded = ctc(junk, torch.tensor([[True] * 4 + [False] * 2]))
    target = Tokens.pad([[6, 7, EOS]])
    torch.testing.assert_close(ctc_nll(padded, target)[0], ctc_nll(alone, target)[0])
    assert (alone[..., EOS].exp() == 0).all()
    torch.testing.assert_close(alone.exp().sum(-1), torch.ones(1, 4, dtype=torch.float64))


def test_gradients() -> None:
    torch.manual_seed(3)
    ctc = Ctc(width=3, vocabulary=VOCABULARY).double()
    target = Tokens.pad([[6, 6, EOS], [7, EOS]])
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    states = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: ctc_nll(ctc(given, mask), target)[0], states)


def model(**parts: object) -> EncoderDecoder:
    torch.manual_seed(4)
    raw = {
        "source_embedding": {"kind": "projection", "width": 4},
        "target_embedding": {"width": 4},
        "encoder": {"kind": "pyramid", "width": 4, "layers": 2},
        "decoder": {"kind": "luong", "width": 4},
        "ctc": True,
        **parts,
    }
    return EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=3, target_vocabulary=9)


def some_batch() -> Batch:
    frames = Frames.pad([torch.randn(length, 3) for length in (8, 5, 2)])
    return Batch({"source": frames}, Tokens.pad([[6, 7, EOS], [8, EOS], [6, 6, 7, EOS]]))


def test_its_share_of_the_loss() -> None:
    """The third target has four tokens by three sounds, and its source one position: it is learned without CTC."""
    network, batch = model(), some_batch()
    task = Transduce(Transduce.Settings(ctc=0.4), vocabularies=(9, 9), searching=SearchSettings())
    with Tape(CTC) as tape:
        plain = network.losses(batch)[1]
    values, fits = ctc_nll(tape.steps(CTC)[0], batch.target)
    assert fits.tolist() == [True, True, False]
    sums = [plain[:3].sum(), plain[3:5].sum(), plain[5:].sum()]
    expected = sum(0.6 * own + 0.4 * heard for own, heard in zip(sums[:2], values[:2], strict=True)) + sums[2]
    loss = task.loss(network.train(), batch, 1)
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.nll, plain.sum())
    torch.testing.assert_close(task.loss(network.eval(), batch, 1).total, plain.sum())  # validation is plain
    assert loss.count == 9
    loss.total.backward()
    assert network.ctc is not None
    assert network.ctc.linear.weight.grad is not None
    assert network.ctc.linear.weight.grad.any()
    assert "lengths" in str(task.obstacle(network))


def test_nothing_of_it_is_computed_where_nobody_listens() -> None:
    network, batch = model(), some_batch()
    assert network.ctc is not None
    network.ctc.forward = None  # type: ignore[assignment,method-assign]
    network.losses(batch)


def test_shares_of_tokens_add_up() -> None:
    log_probs, target = spoken(), Tokens.pad([[6, 7, EOS]])
    value = ctc_nll(log_probs, target)[0][0]
    minimised = torch.rand(3, dtype=torch.float64)
    mixed = with_ctc(minimised, log_probs, target, 0.25)
    torch.testing.assert_close(mixed.sum(), 0.75 * minimised.sum() + 0.25 * value)


@pytest.mark.parametrize(
    ("parts", "words"), [({"decoder": "label"}, "says labels"), ({"head": "copy"}, "tokens of the vocabulary")]
)
def test_what_cannot_be_said_so_is_refused(parts: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EncoderDecoder.Settings.model_validate({"ctc": True, **parts})


# --- prefixes in a search --------------------


def prefixes(outputs: dict[tuple[int, ...], float], prefix: tuple[int, ...]) -> float:
    return sum(chance for said, chance in outputs.items() if said[: len(prefix)] == prefix)


@pytest.mark.parametrize("real", [3, 4])
@pytest.mark.parametrize("prefix", [(), (6,), (7,), (6, 7), (6, 6), (8, 7, 8), (7, 7, 6)])
def test_steps_are_shares_of_what_begins_so(prefix: tuple[int, ...], real: int) -> None:
    """Against the sum over all outputs, itself the sum over all paths."""
    log_probs = spoken(positions=4, seed=5, real=real)
    outputs = by_paths(log_probs[0, :real])
    state, total = begun(log_probs, 1), 0.0
    for last, token in zip((BOS, *prefix), (*prefix, None), strict=True):
        told, state = continued(torch.tensor([last]), state)
        if token is not None:
            total += float(told[0, token])
    expected = prefixes(outputs, prefix)
    if not expected:
        assert total <= LOWEST
        return
    assert total == pytest.approx(math.log(expected), abs=1e-9)
    for token in (*SAYS, EOS):
        wanted = outputs.get(prefix, 0.0) if token == EOS else prefixes(outputs, (*prefix, token))
        if wanted:
            assert float(told[0, token]) == pytest.approx(math.log(wanted / expected), abs=1e-9)
        else:
            assert float(told[0, token]) == LOWEST


def test_rows_are_told_apart_and_move_with_their_state() -> None:
    """Law 2: two sources, two hypotheses each; reordered, dropped and repeated."""
    log_probs = torch.cat([spoken(seed=6), spoken(seed=7)])
    _, state = continued(torch.full((4,), BOS), begun(log_probs, 2))
    _, state = continued(torch.tensor([6, 7, 8, 6]), state)
    told, _ = continued(torch.tensor([7, 7, 6, 6]), state.clone())
    rows, sources = torch.tensor([3, 2]), torch.tensor([1])
    moved, _ = continued(torch.tensor([6, 6]), state.select(rows, sources))
    torch.testing.assert_close(moved, told[rows])
    for row, (first, second) in enumerate([(6, 7), (7, 7), (8, 6), (6, 6)]):
        alone = begun(log_probs[row // 2 : row // 2 + 1], 1)
        for token in (BOS, first, second):
            single, alone = continued(torch.tensor([token]), alone)
        torch.testing.assert_close(single[0], told[row])


@torch.no_grad()
def test_a_search_is_advised_and_keeps_its_own_probabilities() -> None:
    network = model().eval()
    frames = Frames.pad([torch.randn(length, 3, generator=torch.Generator().manual_seed(8)) for length in (16, 9)])
    prefix = CtcPrefix(network)
    advice = Mixture([prefix], [0.7], VOCABULARY)
    found = search(network, {"source": frames}, STRATEGIES.settings({"kind": "beam", "size": 4}), advice=advice)
    memory = network.encoder(frames)
    assert network.ctc is not None
    log_probs = network.ctc(memory.states, memory.mask)
    for row, hypotheses in enumerate(found):
        for one in hypotheses:
            if one.truncated:
                continue
            target = Tokens.pad([[*one.tokens, EOS]])
            values, fits = ctc_nll(log_probs[row : row + 1], target)
            if fits[0] and one.tokens:
                assert one.advice == pytest.approx(-0.7 * float(values[0]), abs=1e-3)
            forced = network.nll(Batch({"source": frames.rows(torch.tensor([row]))}, target)).sum()
            assert one.log_prob == pytest.approx(-float(forced), abs=1e-3)
