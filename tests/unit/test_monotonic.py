"""Hard monotonic attention: the forward algorithm equals the sum over all monotone alignments, and it is learned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from random import Random

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from seqloom.batch import Batch, Tokens
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.models import monotonic
from seqloom.models.contracts import Memory, State
from seqloom.models.model import EncoderDecoder
from seqloom.models.monotonic import Monotonic
from seqloom.nn.tape import Tape
from seqloom.recipe import Recipe
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS
from seqloom.tasks.transduce import SearchSettings, Transduce

V, WIDTH = 9, 4
SOURCES = [[6, 7, 8, EOS], [8, EOS], [7, 7, EOS]]
TARGETS = [[7, 6, EOS], [8, 8, 6], [6, EOS]]


def network(**decoder: object) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": WIDTH},
        "target_embedding": {"width": WIDTH},
        "encoder": {"width": WIDTH},
        "decoder": {"kind": "monotonic", "width": WIDTH, **decoder},
    }
    torch.manual_seed(4)
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=V, target_vocabulary=V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # away from the middle, where every alignment is alike
        decoder_of(model).again.normal_()
    return model.double().eval()


def some_batch() -> Batch:
    return Batch({"source": Tokens.pad(SOURCES)}, Tokens.pad(TARGETS))


def decoder_of(model: EncoderDecoder) -> Monotonic:
    assert isinstance(model.decoder, Monotonic)
    return model.decoder


Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def parts_of(model: EncoderDecoder, source: list[int], target: list[int]) -> Parts:
    """As the equations say: stay (T 2 P), leave (T 2 P), come from j to i (T P P) and emissions (T 2 P V)."""
    decoder, sources = decoder_of(model), {"source": Tokens.pad([source])}
    memory = model.encode(sources)["source"]
    state = model.start(sources, 1)
    h = decoder.history(torch.tensor([[BOS, *target[:-1]]]), state)[0][0]  # T D
    states = torch.cat([torch.zeros(1, WIDTH, dtype=torch.float64), memory.states[0]])  # P D: s_0, s_1, ...
    first = decoder.place(states) + decoder.query(h)[:, None]  # T P A
    z = torch.tanh(torch.stack([first, first + decoder.again], dim=1))  # T 2 P A
    stay, stop = decoder.moves(z).sigmoid().unbind(-1)  # T 2 P
    stay[..., 0], stay[..., -1], stop[..., -1] = 0.0, 1.0, 1.0
    come = torch.zeros(len(h), len(states), len(states), dtype=torch.float64)
    for t in range(len(h)):
        for j in range(len(states)):
            for i in range(j + 1, len(states)):
                come[t, j, i] = stop[t, 0, i] * (1 - stop[t, 0, j + 1 : i]).prod()
    torch.testing.assert_close(come[:, :-1].sum(-1), torch.ones(len(h), len(source), dtype=torch.float64))
    return stay, 1 - stay, come, decoder.output(z).softmax(-1)


def alignments(steps: int, places: int) -> Iterator[tuple[int, ...]]:
    """Every monotone alignment of so many target tokens."""
    yield from combinations_with_replacement(range(places), steps)


def joint(parts: Parts, target: list[int], path: tuple[int, ...]) -> Tensor:
    """p(y, a): one alignment's own probability, from before the first position on."""
    stay, leave, come, emissions = parts
    probability, before, again = torch.ones((), dtype=torch.float64), 0, 0
    for t, place in enumerate(path):
        if 1 + place == before:
            probability, again = probability * stay[t, again, before], 1
        else:
            probability, again = probability * leave[t, again, before] * come[t, before, 1 + place], 0
        before = 1 + place
        if t < len(target):
            probability = probability * emissions[t, again, before, target[t]]
    return probability


@pytest.mark.parametrize(
    "raw",
    [{}, {"layers": 2, "start": "bridge"}, {"hidden": 7, "cell": "gru"}],
    ids=str,
)
@torch.no_grad()
def test_likelihood_is_the_sum_over_all_monotone_alignments(raw: dict[str, object]) -> None:
    model, batch = network(**raw), some_batch()
    nll = model.nll(batch).sum(1)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        parts = parts_of(model, source, target)
        paths = list(alignments(len(target), len(source)))
        assert len(paths) > len(source)
        total = torch.stack([joint(parts, target, path) for path in paths]).sum()
        torch.testing.assert_close(nll[row], -total.log(), atol=1e-10, rtol=0)


@torch.no_grad()
def test_every_next_token_has_the_probability_of_the_sum() -> None:
    """p(y_t | y_<t) for all of the vocabulary: p(y_<t y_t) / p(y_<t), each a sum over alignments."""
    model, source, target = network(), SOURCES[0], TARGETS[0]
    parts, state, last = parts_of(model, source, target), model.start({"source": Tokens.pad([source])}, 1), BOS
    for t, token in enumerate(target):
        log_probs, state = model.step(torch.tensor([last]), state)
        torch.testing.assert_close(log_probs.exp().sum(), torch.ones((), dtype=torch.float64))
        before = sum(joint(parts, target[:t], path) for path in alignments(t, len(source)))
        for word in range(V):
            said = [*target[:t], word]
            whole = sum(joint(parts, said, path) for path in alignments(t + 1, len(source)))
            torch.testing.assert_close(log_probs[0, word], (whole / before).log(), atol=1e-10, rtol=0)
        last = token


@torch.no_grad()
def test_the_tap_shows_where_the_next_token_will_be_said_before_it_is_known() -> None:
    model, batch = network(), some_batch()
    (weights,) = model.attention(batch)  # B 1 T S
    assert weights.shape == (3, 1, 3, 4)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        parts = parts_of(model, source, target)
        for t in range(len(target)):
            paths = list(alignments(t + 1, len(source)))
            mass = torch.zeros(len(source), dtype=torch.float64)
            for path in paths:  # p(a_t, y_<t): the last place says nothing yet
                mass[path[-1]] += joint(parts, target[:t], path)
            torch.testing.assert_close(weights[row, 0, t, : len(source)], mass / mass.sum(), atol=1e-10, rtol=0)
        assert not weights[row, :, :, len(source) :].any()


@torch.no_grad()
def test_a_new_decoder_begins_at_the_first_position_and_goes_on_by_one() -> None:
    """From an even start some models learned to say everything one position late, with nothing left for the last."""
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate({"decoder": "monotonic"})
    model = EncoderDecoder(settings, source_vocabulary=V, target_vocabulary=V).eval()
    (weights,) = model.attention(Batch({"source": Tokens.pad([[6, 7, 8, EOS]])}, Tokens.pad([[7, 6, 8, EOS]])))
    assert weights[0, 0, :2].argmax(-1).tolist() == [0, 1]  # later steps have had time to differ
    expected = (weights[0, 0] * torch.arange(4)).sum(-1)
    assert bool((expected.diff() > 0.2).all())


@torch.no_grad()
def test_what_is_put_in_the_place_of_the_weights_says_the_token_and_nothing_goes_back() -> None:
    model, batch = network(), some_batch()
    assert batch.target is not None
    source, target = SOURCES[0], TARGETS[0]
    emissions = parts_of(model, source, target)[-1]

    def second(weights: Tensor, step: int) -> Tensor:
        only = torch.zeros_like(weights)
        only[..., 1] = 1.0
        return only if step == 0 else weights

    with Tape("decoder.attention", replace={"decoder.attention": second}) as tape:
        nll = model.nll(batch)
    torch.testing.assert_close(nll[0, 0], -emissions[0, 0, 2, target[0]].log(), atol=1e-10, rtol=0)
    after = tape.steps("decoder.attention")[1]
    assert after[..., 0].max() < 1e-100  # the first place lies behind
    torch.testing.assert_close(after.sum(-1), torch.ones(3, 1, 1, dtype=torch.float64))


@torch.no_grad()
def test_gaps_in_a_memory_are_no_positions_and_weights_stand_where_the_memory_stands() -> None:
    """As where a second source follows the padding of the first."""
    model = network()
    states = torch.randn(1, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    summary = model.encode({"source": Tokens.pad([[6, EOS]])})["source"].summary
    apart = torch.zeros(1, 5, WIDTH, dtype=torch.float64)
    places, tokens = torch.tensor([0, 3, 4]), torch.tensor([[BOS, 7, 6]])
    apart[:, places] = states
    outputs, weights = [], []
    for memory in (
        Memory(states, torch.ones(1, 3, dtype=torch.bool), summary),
        Memory(apart, torch.tensor([[True, False, False, True, True]]), summary),
    ):
        with Tape("decoder.attention") as tape:
            outputs.append(model.decoder(tokens, model.decoder.start({"source": memory}, 1))[0])
        weights.append(tape.joined("decoder.attention", dim=2))
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(weights[1][..., places], weights[0], atol=1e-10, rtol=0)
    assert not weights[1][..., 1:3].any()


@pytest.mark.parametrize("ragged", [False, True])
def test_pieces_equal_the_whole_with_their_gradients(ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = network(), some_batch()
    assert batch.target is not None
    tokens = batch.target.ids.roll(1, 1)
    lengths = torch.tensor([3, 0, 2]) if ragged else None

    def outcome() -> tuple[Tensor, State, tuple[Tensor, ...]]:
        features, state = model.decoder(tokens, model.start(batch.sources, 1), lengths)
        seen = features if lengths is None else features[torch.arange(3) < lengths[:, None]]
        again = model.decoder(tokens[:, :1], state)[0]
        found = torch.autograd.grad(seen.square().sum() + again.square().sum(), list(model.parameters()))
        return torch.cat([seen.flatten(), again.flatten()]), state, found

    whole = outcome()
    for steps in (1, 2):
        monkeypatch.setattr(monotonic, "EMISSION_CELLS", steps * 3 * 2 * 5 * V)
        pieces = outcome()
        torch.testing.assert_close(pieces[0], whole[0], atol=1e-10, rtol=0)
        for one, other in zip(pieces[2], whole[2], strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)
        for name, tensor in whole[1].rows.items():
            torch.testing.assert_close(pieces[1].rows[name], tensor, atol=1e-10, rtol=1e-10)


def test_gradients_of_the_sum_over_alignments() -> None:
    """With respect to the memory, through transitions, emissions and the history's first state, padding included."""
    model = network(start="bridge")
    mask = torch.tensor([[True, True, True], [True, False, False]])
    tokens = torch.tensor([[BOS, 6, 8], [BOS, 7, EOS]])
    states = torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    memory = model.encode({"source": Tokens.pad([[6, 7, EOS], [EOS]])})["source"]

    def said(states: Tensor) -> Tensor:
        read = Memory(states.masked_fill(~mask[..., None], 0.0), mask, memory.summary)
        return model.decoder(tokens, model.decoder.start({"source": read}, 2))[0]

    assert gradcheck(said, (states,))


def test_every_parameter_is_reached() -> None:
    model = network(layers=2)
    found = torch.autograd.grad(model.losses(some_batch(), smoothing=0.1)[0].sum(), list(model.parameters()))
    assert all(gradient.isfinite().all() and gradient.any() for gradient in found)


@torch.no_grad()
def test_long_outputs_and_sharp_scores_stay_finite_in_float32() -> None:
    model = network().float()
    with torch.no_grad():
        decoder_of(model).moves.weight.mul_(200.0)
        decoder_of(model).output.weight.mul_(50.0)
    generator = torch.Generator().manual_seed(2)
    source, target = (torch.randint(6, V, (2, length), generator=generator) for length in (40, 60))
    batch = Batch({"source": Tokens(source, source > 0)}, Tokens(target, target > 0))
    with torch.enable_grad():
        nll = model.nll(batch)
        found = torch.autograd.grad(nll.sum(), list(model.parameters()))
    assert nll.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in found)


# --- settings --------------------


def test_the_head_is_none_unless_a_recipe_says_otherwise() -> None:
    settings = EncoderDecoder.Settings.model_validate({"decoder": "monotonic"})
    assert settings.head.kind == "none"  # type: ignore[attr-defined]
    assert EncoderDecoder.Settings.model_validate(settings.model_dump(mode="json")) == settings
    assert EncoderDecoder.Settings().head.kind == "linear"  # type: ignore[attr-defined]
    assert EncoderDecoder.Settings.model_validate({"head": {"bias": False}}).head.bias is False  # type: ignore[attr-defined]


def test_so_it_is_in_a_whole_recipe() -> None:
    """Whose own default model has a linear head: what a default leaves to its class depends on what is given."""
    raw = {"data": {"train": "pairs.tsv"}, "training": {"steps": 1}, "model": {"decoder": {"kind": "monotonic"}}}
    recipe = validated(Recipe, raw, "recipe.yaml")
    assert recipe.model.head.kind == "none"  # type: ignore[attr-defined]
    assert validated(Recipe, recipe.model_dump(mode="json"), "recipe.yaml") == recipe
    other = validated(Recipe, {**raw, "model": {"encoder": {"layers": 2}}}, "recipe.yaml")
    assert other.model.head.kind == "linear"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"decoder": "monotonic", "head": "linear"}, "head: a monotonic decoder says its probabilities itself"),
        ({"decoder": "luong", "head": "none"}, "head: none has no probabilities"),
        ({"decoder": "monotonic", "tied": True}, "tied: a monotonic decoder has no output layer"),
    ],
)
def test_what_does_not_fit_is_refused(raw: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EncoderDecoder.Settings.model_validate(raw)


def test_a_decoder_without_an_encoder_cannot_be_monotonic() -> None:
    with pytest.raises(ValueError, match="no positions to align to without an encoder"):
        Monotonic.Settings().fitted(encoder=False)


def test_large_vocabularies_are_refused_with_the_limit() -> None:
    settings = EncoderDecoder.Settings.model_validate({"decoder": "monotonic"})
    with pytest.raises(SeqloomError, match=r"5,000 tokens are over its limit of 4,096.*characters") as refused:
        EncoderDecoder(settings, source_vocabulary=10, target_vocabulary=5_000)
    assert refused.value.code == "E_RECIPE"


# --- learning --------------------


def insertions(rows: int, seed: int) -> Batch:
    """Every 6 is said as 6 8, every 7 as 7: "6 7 6" becomes "6 8 7 6 8"."""
    draw = Random(seed)
    sources = [[draw.choice((6, 7)) for _ in range(draw.randint(2, 6))] for _ in range(rows)]
    targets = [[said for token in source for said in ((6, 8) if token == 6 else (7,))] for source in sources]
    return Batch(
        {"source": Tokens.pad([[*source, EOS] for source in sources])},
        Tokens.pad([[*target, EOS] for target in targets]),
    )


def test_a_copy_with_insertions_is_learned_and_aligned() -> None:
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate(
        {
            "source_embedding": {"width": 16},
            "target_embedding": {"width": 16},
            "encoder": {"width": 16},
            "decoder": {"kind": "monotonic", "width": 16},
        }
    )
    model = EncoderDecoder(settings, source_vocabulary=V, target_vocabulary=V)
    greedy = SearchSettings(strategy=STRATEGIES.settings("greedy"))
    task = Transduce(Transduce.Settings(), vocabularies=(V, V), searching=greedy)
    optimiser = torch.optim.Adam(model.parameters(), 0.03)
    for step in range(60):
        loss = task.loss(model, insertions(16, step), step)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    batch = insertions(40, seed=10_000)
    assert batch.target is not None
    found = task.predict(model.eval(), batch)
    gold = [ids[mask][:-1].tolist() for ids, mask in zip(batch.target.ids, batch.target.mask, strict=True)]
    assert sum(list(one[0].tokens) == wanted for one, wanted in zip(found, gold, strict=True)) >= 38
    (weights,) = model.attention(batch)  # B 1 T S
    for row, (source, target) in enumerate(zip(batch.sources["source"].ids.tolist(), gold, strict=True)):
        places = [place for place, token in enumerate(source) for _ in range({6: 2, 7: 1}.get(token, 0))]
        looked = weights[row, 0, : len(target)].argmax(-1).tolist()
        assert sorted(looked) == looked
        assert all(abs(one - other) <= 1 for one, other in zip(looked, places, strict=True))  # 8 may be either's
