"""`batching.tokens: auto`: presets by the size of the data, halved until the longest examples fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from commands import write_recipe
from seqloom import runtime
from seqloom.api.train import Wishes, train
from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.data.batching import Batching
from seqloom.errors import SeqloomError
from seqloom.tasks.base import Loss
from seqloom.training import budget
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model

EXAMPLES = ToyBatches().examples


def longest(tokens: int) -> Batch:
    return ToyTask().collate(sorted(EXAMPLES, key=lambda pair: -len(pair[0]))[: max(1, tokens // 6)])


def loss_with(model: ToyModel) -> budget.LossOf:
    return lambda batch: ToyTask().loss(model, batch, 1)


@pytest.mark.parametrize(
    ("pairs", "tokens"), [(1, 1024), (2_999, 1024), (3_000, 2048), (29_000, 2048), (10**6, 8192), (10**9, 16384)]
)
def test_presets_grow_with_the_data(pairs: int, tokens: int) -> None:
    assert budget.preset(pairs) == tokens


def test_with_memory_enough_or_unknown_it_is_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    for free in (None, 1 << 40):
        monkeypatch.setattr(runtime, "free_memory", lambda free=free: free)
        model = toy_model()
        assert budget.fitting(model, loss_with(model), longest, 5_000) == 2048
        assert all(parameter.grad is None for parameter in model.parameters())


def test_with_little_memory_it_is_halved_but_never_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_model()
    batch = longest(budget.LEAST)
    assert batch.target is not None
    each = budget.WORKING * budget.kept_bytes(model, loss_with(model), batch) / batch.target.mask.numel()
    states = budget.STATES * sum(parameter.numel() * 4 for parameter in model.parameters())
    for tokens in (1024, 256):
        room = int((tokens * each + states) / budget.SHARE) + 1
        monkeypatch.setattr(runtime, "free_memory", lambda room=room: room)
        assert budget.fitting(model, loss_with(model), longest, 5_000) == tokens
    monkeypatch.setattr(runtime, "free_memory", lambda: 1)
    assert budget.fitting(model, loss_with(model), longest, 5_000) == budget.LEAST


def test_what_is_kept_for_the_backward_pass_is_counted_once() -> None:
    weight = torch.nn.Linear(3, 4, bias=False)

    def loss_of(batch: Batch) -> Loss:
        inputs = torch.ones(5, 3)
        outputs = weight(inputs)  # keeps its inputs: 60 bytes (the weight itself is not counted)
        total = (outputs.exp() + weight(inputs)).sum()  # exp keeps its result: 80 bytes; the inputs were counted
        return Loss(total, torch.tensor(1), total.detach())

    assert budget.kept_bytes(weight, loss_of, longest(64)) == 140


def test_a_gpu_is_asked_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the GPU's own questions answered here: what runs out of memory is halved, other errors are not hidden."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    model, tried = toy_model(), []

    def loss_of(batch: Batch) -> Loss:
        tried.append(len(batch))
        if len(batch) > 12:
            raise torch.OutOfMemoryError("no room")
        return ToyTask().loss(model, batch, 1)

    fits = budget._tried(model, loss_of, longest)
    assert [fits(tokens) for tokens in (132, 66)] == [False, True]
    assert tried == [22, 11]
    assert all(parameter.grad is None for parameter in model.parameters())

    def broken(batch: Batch) -> Loss:
        raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        budget._tried(model, broken, longest)(64)


def test_memory_on_this_system_is_a_number_or_unknown() -> None:
    free = runtime.free_memory()
    assert free is None or free > 1 << 20


def test_the_choice_is_written_down_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path, batching="{tokens: auto}")
    asked = iter(range(5))
    told: list[str] = []
    wishes = Wishes(stop=lambda: "interrupted" if next(asked) == 1 else None, tell=told.append)
    train(recipe, tmp_path / "run", wishes=wishes)
    assert any("1,024 tokens suit" in line for line in told)
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["batching"]["tokens"] == 1024

    def twice(*_: object) -> int:
        raise AssertionError("measured again")

    monkeypatch.setattr(budget, "fitting", twice)
    assert train(recipe, tmp_path / "run").reason == "steps"
    assert train(tmp_path / "run").reason == "steps"
    bundle = yaml.safe_load((tmp_path / "run" / "bundle" / "recipe.yaml").read_text())
    assert bundle["batching"]["tokens"] == 1024


@pytest.mark.parametrize("tokens", [0, -5, "autp", 1.5, True, None])
def test_other_words_are_refused(tokens: object) -> None:
    with pytest.raises(SeqloomError, match="tokens: a number of tokens from 1 up, or auto") as refusal:
        validated(Batching, {"tokens": tokens}, "recipe.yaml")
    assert refusal.value.code == "E_RECIPE"
