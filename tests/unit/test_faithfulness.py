"""Faithfulness against models whose attention is known to matter, or not to."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from test_attribution import MODELS_BY_NAME, WITHOUT_ATTENTION, network, pair
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.nn.tape import Tape
from seqloom.probe.faithfulness import (
    AGREES,
    FAR,
    MOVES,
    Asked,
    Faithfulness,
    Measure,
    Steps,
    Trials,
    adversarial,
    kendall,
    measured,
    permuted,
    same_first,
    spearman,
)
from seqloom.probe.pair import alone
from seqloom.specials import EOS, SPECIALS

ATTENTIVE = [name for name in MODELS_BY_NAME if name not in WITHOUT_ATTENTION]
every_attentive = pytest.mark.parametrize("name", ATTENTIVE)
FEW = Trials(steps=5, permutations=3)


# --- rankings --------------------------------------------------------------------------------------------------------


def test_rankings_of_known_correlation() -> None:
    """The first and the last are examples of scipy's documentation, with their results."""
    a = np.array([12.0, 2, 1, 12, 2])
    b = np.array([1.0, 4, 7, 1, 0])
    assert kendall(a, b) == pytest.approx(-0.47140452079103173)
    rising = np.arange(5.0)
    assert kendall(rising, rising**3) == spearman(rising, rising**3) == pytest.approx(1)
    assert kendall(rising, -rising) == spearman(rising, -rising) == pytest.approx(-1)
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([5.0, 6, 7, 8, 7])) == pytest.approx(0.8207826816681233)
    assert math.isnan(kendall(rising, np.ones(5)))
    assert math.isnan(spearman(np.ones(5), rising))


def test_tau_counts_pairs() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.permutation(7).astype(float), rng.permutation(7).astype(float)
        signs = [np.sign((a[i] - a[j]) * (b[i] - b[j])) for i, j in itertools.combinations(range(7), 2)]
        assert kendall(a, b) == pytest.approx(sum(signs) / len(signs))
        ranks = np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1]
        assert spearman(a, b) == pytest.approx(ranks)


# --- one step at a time ----------------------------------------------------------------------------------------------


@every_attentive
@torch.no_grad()
def test_steps_as_rows_answer_and_look_as_one_forced_pass(name: str) -> None:
    model, batch = network(name), alone(pair(name))
    asked = Asked(model, batch)
    features, state = model.forced(batch)
    torch.testing.assert_close(asked.probabilities, model.head.log_probs(features, state)[0].exp())
    for own, layer in zip(asked.over_source, model.attention(batch), strict=True):
        torch.testing.assert_close(own[:, :, 0].transpose(0, 1), layer[0])
    every = torch.arange(len(asked.last))
    torch.testing.assert_close(asked.answers(every, asked.over_source), asked.probabilities)
    assert (asked.changed(every, asked.over_source) < 1e-12).all()


@pytest.mark.parametrize("name", ["luong", "bahdanau, GRU", "transformer", "copy", "extra"])
@torch.no_grad()
def test_weights_are_changed_at_one_step_alone(name: str) -> None:
    """Brute force: a whole pass for each step, in which the weights of that step alone are turned round."""
    model, batch = network(name), alone(pair(name))
    asked = Asked(model, batch)
    turned = [weights.flip(-1) for weights in asked.over_source]
    answers = asked.answers(torch.arange(4), turned)
    for step in range(4):
        seen = dict.fromkeys(asked.taps, 0)

        def turn(name: str, weights: Tensor, step: int = step, seen: dict[str, int] = seen) -> Tensor:
            here, changed = step - seen[name], weights.clone()
            seen[name] += weights.shape[2]
            if 0 <= here < weights.shape[2]:
                changed[:, :, here] = turned[asked.taps.index(name)][step, :, 0]
            return changed

        replace = {tap: lambda weights, _, tap=tap: turn(tap, weights) for tap in asked.taps}
        with Tape(replace=replace):
            features, state = model.forced(batch)
            log_probs = model.head.log_probs(features, state)[0, step]
        torch.testing.assert_close(answers[step], log_probs.exp())


@torch.no_grad()
def test_a_joint_models_weights_change_places_in_the_source_alone() -> None:
    model, batch = network("joint transformer"), alone(pair("joint transformer"))
    asked = Asked(model, batch)
    assert asked.places.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]  # a separator stands behind each source
    put = asked._put(torch.tensor([2]), 0, [weights[2:3].flip(-1) for weights in asked.over_source])
    whole, own = put(torch.empty(0), 0)[0], asked.weights[0][2]
    torch.testing.assert_close(whole.sum(-1), own.sum(-1))
    torch.testing.assert_close(whole[..., 5], own[..., 5])
    torch.testing.assert_close(whole[..., 9:], own[..., 9:])
    torch.testing.assert_close(whole[..., 0], own[..., 8])


# --- models whose attention is known ---------------------------------------------------------------------------------

VOCABULARY, PLACES = 14, 6


def pointing(scale: float = 12.0, blind: bool = False) -> Generator:
    """A model that says the next source token, and owes all of it to the token that it looks at.

    Embeddings are unit vectors, states are the embeddings themselves, the score of a state is what the last token said
    of it: token k asks for token k + 1. Blind, the output is made of the decoder's own state and not of the context.
    """
    width = VOCABULARY
    raw = {
        "kind": "encoder_decoder",
        "source_embedding": "onehot",
        "target_embedding": "onehot",
        "encoder": {"kind": "bag", "width": width, "activation": "relu"},
        "decoder": {
            "kind": "luong",
            "width": width,
            "cell": {"kind": "elman", "activation": "relu"},
            "start": "bridge",
        },
    }
    model = MODELS.build(MODELS.settings(raw), source_vocabulary=width, target_vocabulary=width).double().eval()
    eye, names = torch.eye(width, dtype=torch.float64), dict(model.named_parameters())
    with torch.no_grad():
        for parameter in names.values():
            parameter.zero_()
        names["encoder.linear.weight"].copy_(eye)
        cell = [parameter for name, parameter in names.items() if "cells.0" in name and "weight_ih" in name]
        cell[0].copy_(eye)
        score = [parameter for name, parameter in names.items() if "attention.scores" in name]
        score[0].copy_(scale * torch.roll(eye, 1, dims=1))
        readout = names["decoder.readout.weight"]  # D 2D: of the state, of the context
        readout[:, :width] = torch.roll(eye, 1, dims=0) if blind else 0
        readout[:, width:] = 0 if blind else eye
        names["head.weight"].copy_(8 * eye)
    return model


def chain() -> Batch:
    """6 7 8 9 10 in any order, read; BOS asks for EOS's neighbour, so the pair begins with 6 given."""
    first = len(SPECIALS)
    read = [first + place for place in (3, 0, 4, 1, 2)]
    return Batch({"source": Tokens.pad([[*read, EOS]])}, Tokens.pad([[*range(first, first + 5), EOS]]))


def looked_at(model: Generator) -> Tensor:
    with torch.no_grad():
        return model.attention(chain())[-1][0].mean(0)


def test_the_pointing_model_points() -> None:
    """After token k it looks at token k + 1, wherever that stands, and says it, blind or not."""
    for blind in (False, True):
        model = pointing(blind=blind)
        assert looked_at(model)[1:5].argmax(1).tolist() == [3, 4, 0, 2]
        features, state = model.forced(chain())
        said = model.head.log_probs(features, state)[0].argmax(1)
        assert said[1:5].tolist() == [7, 8, 9, 10]


def test_where_attention_decides_permuted_weights_change_the_output_and_no_others_keep_it() -> None:
    result = measured(pointing(), chain(), Trials(permutations=25))
    assert (result.permuted[1:5] > 0.5).all()
    assert (result.adversarial[1:5] < 0.05).all()


def test_where_attention_is_ignored_any_weights_keep_the_output() -> None:
    result = measured(pointing(blind=True), chain(), Trials(permutations=25))
    np.testing.assert_allclose(result.permuted, 0, atol=1e-9)
    assert (result.adversarial[1:5] > 0.6).all()
    assert (result.adversarial <= math.log(2) + 1e-9).all()
    lines = Faithfulness.of([result]).lines()
    assert any("shuffled weights change the output little" in line for line in lines)
    assert any("give the same output" in line for line in lines)


def test_what_counts_as_the_same_output_is_kept() -> None:
    """Every step within epsilon: a looser one lets weights go further."""
    model = network("luong")
    asked = Asked(model, alone(pair("luong")))
    tight, loose = (adversarial(asked, Trials(epsilon=epsilon)) for epsilon in (1e-4, 0.05))
    assert (tight <= loose + 1e-9).all()
    assert (tight < loose).any()
    assert (
        adversarial(asked, Trials(epsilon=-1.0)) == 0
    ).all()  # nothing can keep it: its own weights are all there is


# --- reports ---------------------------------------------------------------------------------------------------------


@every_attentive
def test_every_model_with_attention_is_measured(name: str) -> None:
    result = measured(network(name), pair(name), FEW)
    for values in vars(result).values():
        assert values.shape == (4,)
        assert np.isfinite(values).all()
    assert (np.abs(result.gradient_tau) <= 1).all()
    assert ((result.permuted >= 0) & (result.permuted <= 1)).all()


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (measured(network("luong"), pair("luong"), Trials(steps=5, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.permuted, again.permuted)
    np.testing.assert_array_equal(first.adversarial, again.adversarial)
    assert (first.permuted != other.permuted).any()


def test_one_position_has_no_order() -> None:
    batch = Batch({"source": Tokens.pad([[EOS]])}, Tokens.pad([[7, EOS]]))
    result = measured(network("luong"), batch, FEW)
    assert all(np.isnan(values).all() for values in vars(result).values())
    report = Faithfulness.of([result])
    assert report.lines()[-1] == "caution: too few source tokens to say anything"
    assert report.as_dict()["permuted"] == {"mean": None, "deviation": None, "steps": 0}


@pytest.mark.parametrize("name", WITHOUT_ATTENTION)
def test_without_attention_there_is_nothing_to_measure(name: str) -> None:
    with pytest.raises(SeqloomError, match=r"no attention.*luong"):
        measured(network(name), pair(name))


def known(tau: float, permuted: float, adversarial: float, first: float = 0.0) -> Steps:
    nearly, front = np.array([tau - 0.1, tau + 0.1, math.nan]), np.full(3, first)
    return Steps(nearly, nearly, nearly, nearly, np.full(3, permuted), np.full(3, adversarial), front, front)


def test_cautions_where_measures_disagree_and_their_opposite_where_they_agree() -> None:
    doubtful = Faithfulness.of([known(0.12, MOVES - 0.05, FAR + 0.1)])
    assert doubtful.cautions()[0] == (
        "attention and gradients rank the source tokens differently (tau 0.12): do not read these weights as reasons"
    )
    assert [line.split()[0] for line in doubtful.cautions()] == ["attention", "attention", "shuffled", "quite"]
    assert sum(line.startswith("caution: ") for line in doubtful.lines()) == 4
    good = Faithfulness.of([known(AGREES + 0.2, MOVES + 0.3, FAR - 0.1)])
    assert good.cautions() == []
    assert good.lines()[-1].startswith("attention ranks the source tokens as gradients and occlusion do (tau 0.70")


def test_a_caution_says_where_only_the_order_of_small_weights_differs() -> None:
    """A model that looks at one word alone: what gradients say of the others is noise, and what is in front is not."""
    sharp = Faithfulness.of([known(0.3, MOVES + 0.3, FAR - 0.1, first=1.0)])
    assert sharp.cautions()[0] == (
        "attention and gradients rank the source tokens differently (tau 0.30), though the first of both is the same "
        "in 100 % of the steps: do not read more than the largest weight as a reason"
    )
    assert "the same first in 100 % of the steps" in sharp.lines()[0]


def test_what_is_in_front_is_the_same_or_not() -> None:
    one, other = np.array([0.1, 0.7, 0.2]), np.array([0.0, 3.0, 4.0])
    assert same_first(one, one[[0, 1, 2]]) == 1
    assert same_first(one, other) == 0
    assert math.isnan(same_first(one, np.zeros(3))), "nothing stands out"
    result = measured(pointing(), chain(), FEW)
    assert result.occlusion_first[1:5].tolist() == [1, 1, 1, 1]


def test_means_and_deviations_are_over_steps_that_have_a_value() -> None:
    both = Faithfulness.of([known(0.2, 0.1, 0.2), known(0.6, 0.3, 0.4)])
    assert (both.pairs, both.steps) == (2, 6)
    assert both.gradient_tau == Measure(pytest.approx(0.4), pytest.approx(np.std([0.1, 0.3, 0.5, 0.7])), 4)
    assert both.permuted.mean == pytest.approx(0.2)
    assert both.as_dict()["adversarial"] == {"mean": pytest.approx(0.3), "deviation": pytest.approx(0.1), "steps": 6}


def test_permutations_are_drawn_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(network("luong"), alone(pair("luong")))
    whole = permuted(asked, Trials())
    monkeypatch.setattr("seqloom.probe.faithfulness.AT_ONCE", 40)
    np.testing.assert_allclose(permuted(asked, Trials()), whole, atol=1e-12)
