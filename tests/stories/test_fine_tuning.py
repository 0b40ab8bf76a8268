"""`train --from RUN`: fine-tuning with another loss, frozen parts, new pieces or another precision, from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from commands import Command, write_pairs
from seqloom import runtime
from seqloom.api.folder import read_recipe
from seqloom.api.load import load
from seqloom.api.train import Wishes, train
from seqloom.bundle import open_bundle
from seqloom.errors import SeqloomError

pytest_plugins = ["command_fixtures"]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return open_bundle(run / "bundle").weights()


def fine_tuned(seqloom: Command, run: Path, *settings: str) -> Path:
    """A second run that began with the first one's weights."""
    assignments = [part for setting in settings for part in ("--set", setting)]
    answer = seqloom("train", "--from", run, "--run", run.parent / "second", *assignments, "-q")
    assert answer.code == 0, answer.err
    return run.parent / "second"


def test_minimum_risk_on_a_metric(seqloom: Command, run: Path) -> None:
    second = fine_tuned(seqloom, run, "task.risk={metric: cer, samples: 4, alpha: 0.05}", "steps=4")
    recipe = yaml.safe_load((second / "bundle" / "recipe.yaml").read_text())
    assert recipe["task"]["risk"]["metric"]["kind"] == "cer"
    before, after = weights(run), weights(second)
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert load(second)("abc").text is not None


def test_frozen_parts_are_those_of_the_first_run(seqloom: Command, run: Path) -> None:
    second = fine_tuned(seqloom, run, "freeze=[encoder, '*_embedding.*']", "steps=4")
    before, after = weights(run), weights(second)
    same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
    assert same == {name for name in before if name.startswith("encoder.") or "_embedding." in name}


def test_a_misspelt_part_is_refused_with_the_nearest(seqloom: Command, run: Path) -> None:
    line = seqloom("train", "--from", run, "--run", run.parent / "b", "--set", "freeze=[encodr]", "-q").refused(
        "E_RECIPE", 2
    )
    assert 'did you mean "encoder"' in line
    assert "training.freeze" in line


@pytest.mark.parametrize("threads", [[], ["--threads", 1]], ids=["any threads", "one thread"])
def test_fp16_without_a_gpu_is_refused_before_anything_is_written(
    threads: list[object], seqloom: Command, run: Path
) -> None:
    other = run.parent / "b"
    answer = seqloom(
        "train", run / "recipe.yaml", "--run", other, "--device", "cpu", "--set", "precision=fp16", *threads
    )
    assert "auto or float32" in answer.refused("E_RECIPE", 2)
    assert not (other / "recipe.yaml").exists()


def test_bf16_trains_and_predictions_are_float32_unless_bf16_is_asked_for(seqloom: Command, run: Path) -> None:
    second = fine_tuned(seqloom, run, "precision=bf16", "steps=4")
    assert all(tensor.dtype == torch.float32 for tensor in weights(second).values())
    narrow, wide = load(second, settings=["precision=bf16"]), load(second)
    pairs = [("abcd", "dcba"), ("hg", "gh")]
    for one, other in zip(narrow.score(pairs), wide.score(pairs), strict=True):
        assert one.log_prob != other.log_prob
        assert one.log_prob == pytest.approx(other.log_prob, abs=0.2)
    answers = [
        seqloom("predict", second, "--text", "abcd", "--json", "-q", *how) for how in ([], ["--set", "precision=bf16"])
    ]
    assert [answer.code for answer in answers] == [0, 0]


def test_a_run_keeps_the_precision_that_it_began_with(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto is settled before the first step and written down; a processor that is slow at it goes on in float32."""
    recipe, other = read_recipe(run / "recipe.yaml", ["precision=auto", "steps=3"]), run.parent / "other"
    told: list[str] = []
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(runtime, "LARGE", 1)
    train(recipe, other, wishes=Wishes(tell=told.append, stop=lambda: "interrupted"))
    assert "products in bf16, which this processor is fast at" in told
    monkeypatch.setattr(runtime, "LARGE", 10**9)
    train(recipe, other, wishes=Wishes(tell=told.append, stop=lambda: "interrupted"))
    assert yaml.safe_load((other / "recipe.yaml").read_text())["runtime"]["precision"] == "bf16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    train(recipe, other, wishes=Wishes(tell=told.append))
    assert yaml.safe_load((other / "recipe.yaml").read_text())["runtime"]["precision"] == "float32"
    assert any("runtime.precision: bf16 -> float32" in line for line in told)


def test_bf16_on_a_processor_that_is_slow_at_it_or_cannot(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, told = read_recipe(run / "recipe.yaml", ["precision=bf16", "steps=1"]), []
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    train(recipe, run.parent / "slow", wishes=Wishes(tell=told.append))
    assert any(line.startswith("caution: products in bf16") for line in told)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": False})
    with pytest.raises(SeqloomError, match="AVX-512") as refused:
        train(recipe, run.parent / "never")
    assert refused.value.code == "E_RECIPE"
    assert not (run.parent / "never" / "recipe.yaml").exists()


def test_new_letters_join_the_vocabulary(seqloom: Command, run: Path) -> None:
    data = write_pairs(run.parent / "more.tsv")
    data.write_text(data.read_text().replace("a", "z"))
    assignments = ["--set", f"data.train={data}", "--set", "extend_vocabulary=true", "--set", "steps=3"]
    second = run.parent / "second"
    answer = seqloom("train", "--from", run, "--run", second, *assignments)
    assert answer.code == 0, answer.err
    assert "source: 1 new piece\n" in answer.err
    old, new = load(run).source.vocabulary.ordinary, load(second).source.vocabulary.ordinary
    assert list(new) == [*old, "z"]
