"""A model that learned to say sentences backwards is asked what its states, layers and heads hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tiny
from commands import Command
from seqloom import load
from seqloom.api.depth import attention_heads, context_reach, layer_probes
from seqloom.api.gradients import gradients_by_distance
from seqloom.api.model import Model
from seqloom.api.states import neighbours, state_map
from seqloom.api.testset import held_out
from seqloom.api.train import train
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError

pytest_plugins = ["command_fixtures"]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return load(tiny_run)


@pytest.fixture(scope="module")
def examples(model: Model) -> list[Example]:
    """The test set, each example with its last word in a column that the model does not read."""
    return [replace(one, extras={"last": one.source.split()[-1]}) for one in held_out(model.recipe)]


@pytest.fixture(scope="module")
def transformer(tiny_recipe: Path) -> Model:
    stack = "{kind: transformer, width: 32, layers: 2, heads: 2, dropout: 0}"
    changes = [f"model.encoder={stack}", f"model.decoder={stack}", "training.epochs=10"]
    return load(train(tiny_recipe, tiny_recipe.parent / "run-transformer", changes).folder)


def plain(result: object) -> dict[str, object]:
    """Through JSON and back: nothing in it but plain data."""
    told = json.loads(json.dumps(result.as_dict(), allow_nan=False))  # type: ignore[attr-defined]
    assert isinstance(told, dict)
    return told


def test_a_map_of_the_test_set(model: Model, examples: list[Example]) -> None:
    by_length = state_map(model, examples)
    assert len(by_length.points) == len(examples)
    assert [point.length for point in by_length.points] == [len(one.source.split()) for one in examples]
    assert by_length == state_map(model, examples)
    assert 0 < by_length.explained[1] <= by_length.explained[0] < 1
    assert plain(by_length)["points"][0]["text"] == examples[0].shown  # type: ignore[index]
    shown = by_length.lines(60)
    assert len(shown) == 22
    assert all(len(line) <= 60 for line in shown[1:])
    lengths = [point.length for point in by_length.points]
    assert shown[-1] == f"0: {min(lengths)} ... 9: {max(lengths)}"
    scores = [point.value for point in state_map(model, examples, "score").points]
    assert all(isinstance(score, float) and score < 0 for score in scores)
    labels = state_map(model, examples, "last", which="mean")
    assert {point.value for point in labels.points} <= set(tiny.WORDS)
    with pytest.raises(SeqloomError, match='did you mean "last"'):
        state_map(model, examples, "lst")
    with pytest.raises(SeqloomError, match="at least 2"):
        state_map(model, examples[:1])


def test_neighbours_among_the_training_data(model: Model) -> None:
    """A sentence of the training data is nearest to itself, and to sentences that begin or end alike."""
    known = held_out(model.recipe, "train")
    text = next(one.source for one in known if len(one.source.split()) == 4)
    for measure in ("cosine", "l2"):
        (found,) = neighbours(model, [text], k=6, measure=measure)  # type: ignore[arg-type]
        assert found.among == len(known)
        assert found.near[0].example.source == text
        assert found.near[0].distance == pytest.approx(0, abs=1e-6)
        distances = [one.distance for one in found.near]
        assert distances == sorted(distances)
        assert len(plain(found)["neighbours"]) == 6  # type: ignore[arg-type]
        assert len(found.lines(70)) == 7
    two = neighbours(model, [text, "ant"], known[:3], k=9)
    assert [len(one.near) for one in two] == [3, 3]
    with pytest.raises(SeqloomError, match="the recipe's maximum is"):
        neighbours(model, ["ant " * 1000])
    with pytest.raises(SeqloomError, match="no training examples"):
        neighbours(model, [text], [])


def test_gradients_have_a_curve_for_each_side(model: Model, examples: list[Example]) -> None:
    found = gradients_by_distance(model, examples, most=12)
    assert [curve.name for curve in found.curves] == [
        "encoder layer 1",
        "encoder layer 1 read backwards",
        "decoder layer 1",
    ]
    assert found.examples == 12
    assert all(curve.chain is not None for curve in found.curves)
    assert plain(found)["curves"][2]["distances"][0] == 0  # type: ignore[index]
    assert any("per step" in line for line in found.lines())


def test_a_probe_reads_the_last_word_off_the_states(model: Model, examples: list[Example]) -> None:
    """Of the words themselves the mean says which there are, not which is last; behind the recurrence it is known."""
    more = [replace(one, extras={"last": one.source.split()[-1]}) for one in held_out(model.recipe, "train")[:800]]
    found = layer_probes(model, [*examples, *more], "last")
    words, states = (probe.accuracy for probe in found.probes)
    assert [probe.layer for probe in found.probes] == ["inputs", "layer 1"]
    assert states > words + 0.1 > found.majority
    assert found == layer_probes(model, [*examples, *more], "last")
    assert plain(found)["test"] == round(0.3 * len([*examples, *more]))
    with pytest.raises(SeqloomError, match="1 different label"):
        layer_probes(model, examples, "x", labels=["same"] * len(examples))


def test_reach_grows_from_layer_to_layer(transformer: Model, examples: list[Example]) -> None:
    found = context_reach(transformer, examples)
    first, second = found.layers
    assert sum(first.shares) == pytest.approx(1)
    assert second.here < first.here
    assert plain(found)["mass"] == 0.9
    assert len(found.lines()) == 3


def test_attention_finds_the_word_that_is_said_and_the_model_needs_it(model: Model, examples: list[Example]) -> None:
    found = attention_heads(model, examples, metric=True)
    (head,) = found.heads
    assert head.role == "said word"
    assert head.roles["said word"].share > 2 * head.roles["said word"].chance
    assert head.loss_without is not None
    assert head.loss_without > found.loss + 0.5
    assert head.score_without is not None
    assert found.score is not None
    assert head.score_without < found.score - 20
    assert found.metric == "exact"
    assert "said word" in found.lines()[1]


def test_every_head_of_a_transformer_is_told_and_ranked(transformer: Model, examples: list[Example]) -> None:
    found = attention_heads(transformer, examples)
    assert len(found.heads) == 3 * 2 * 2  # the encoder, the decoder, the decoder over the memory
    losses = [head.loss_without for head in found.ranked]
    assert losses == sorted(losses, reverse=True)  # type: ignore[type-var]
    crossing = [head for head in found.heads if head.tap.endswith(".cross")]
    assert any(head.role == "said word" for head in crossing)
    assert len(plain(found)["heads"]) == 12  # type: ignore[arg-type]
    assert attention_heads(transformer, examples, prune=False).heads[0].loss_without is None


def test_without_attention_there_are_no_heads(tiny_recipe: Path, examples: list[Example]) -> None:
    changes = ["model.decoder.kind=rnn", "training.steps=1"]
    blind = load(train(tiny_recipe, tiny_recipe.parent / "run-blind", changes).folder)
    with pytest.raises(SeqloomError, match="no heads"):
        attention_heads(blind, examples)


SHORTER = "{kind: subsampled, width: 16, halvings: 1, over: {kind: transformer, width: 16, layers: 1, heads: 2}}"


@pytest.mark.parametrize("kind", ["{kind: bag, width: 16}", "{kind: pyramid, width: 16, layers: 2}", SHORTER])
def test_every_encoder_has_its_depth_told(kind: str, tiny_recipe: Path, seqloom: Command, tmp_path: Path) -> None:
    """Where no reach can be told, that is said, and the heads are told all the same."""
    blind = train(tiny_recipe, tmp_path / "run", [f"model.encoder={kind}", "training.steps=2"]).folder
    shown = seqloom("explain", blind, "--depth")
    assert shown.code == 0, shown.err
    assert ("no reach: its encoder reads every token alone" in shown.out) == ("bag" in kind)
    assert ("one state stands for 2 positions" in shown.out) == ("bag" not in kind)
    assert "without it" in shown.out
    reach = json.loads(seqloom("explain", blind, "--depth", "--json").out)["reach"]
    assert (reach["why"] is None) == bool(reach["layers"])
