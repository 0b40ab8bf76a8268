"""On a GPU: the sums of several processes, by NCCL in a group of one and by gloo where two share the GPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import several
from commands import write_recipe
from seqloom.ranks.launch import Launch
from seqloom.ranks.several import Several

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_group_of_one_sums_by_nccl() -> None:
    device = torch.device("cuda")
    parameters = [nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.ones(2, device=device))]
    parameters[0].grad = torch.full((3,), 2.0, device=device)
    with Several(Launch(0, 1, 0, 1, "127.0.0.1", several.free_port())) as ranks:
        ranks.connect(device, 60)
        ranks.sum_gradients(parameters, all_there=False)
        assert parameters[0].grad.tolist() == [2.0] * 3
        assert parameters[1].grad is None
        assert ranks.sum(torch.ones(2, device=device)).tolist() == [1.0, 1.0]
        assert ranks.sums([1.5]) == [1.5]
        assert ranks.vote("preempted") is None
        assert ranks.vote(None) == "preempted"
        ranks.disconnect()


def test_two_processes_on_one_gpu_train_with_graphs(tmp_path: Path) -> None:
    training = "{steps: 120, validate_every: 60, log_every: 20, optimiser: {kind: adam, lr: 0.02}, accumulate: 2}"
    recipe, run = write_recipe(tmp_path, training=training, runtime="{device: cuda}"), tmp_path / "run"
    with several.train(2, recipe, "--run", run, "--no-report") as ranks:
        assert ranks.codes() == [0, 0], ranks.everything()
        assert "CUDA graphs" in ranks.said(0)
        assert "from here on one by one" not in ranks.everything()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["nll"] for line in lines if line["event"] == "logged"]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
