"""kill -9 at any moment, also between two file operations of a save: what is resumed is what nobody killed, to the bit.

A few kills of each kind; `benchmarks/kills.py` makes hundreds, and its results are in benchmarks/results/kills.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from commands import write_recipe
from seqloom import train
from seqloom.training import checkpoints

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trainings are forked")


@pytest.fixture(scope="module")
def kills() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module("kills")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("model", ["rnn", "transformer"])
def test_killed_and_resumed_equals_uninterrupted(model: str, kills: Any, tmp_path: Path) -> None:
    trial = kills.Trial(tmp_path, model)
    for share in (0.1, 0.4, 0.97):  # of all file operations: while data are prepared, in a save, in the last bundle
        assert trial.before(int(share * trial.operations)) == []
    done, _, wrong = trial.at_random(1, seed=3)
    assert wrong == []
    assert done >= 1


def test_a_run_that_is_killed_while_it_drops_old_checkpoints_drops_them_when_it_goes_on(tmp_path: Path) -> None:
    """At the last one, behind which no other save would do it."""
    run = train(write_recipe(tmp_path), tmp_path / "run").folder
    expected = [path.name for path in checkpoints.every(run)]
    (run / "finished.json").unlink()
    half = checkpoints.folder_of(run, 3)
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"")
    train(tmp_path / "tiny.yaml", run)
    assert [path.name for path in checkpoints.every(run)] == expected


def test_the_comparison_sees_what_differs(kills: Any, tmp_path: Path) -> None:
    """One bit of the optimiser, a line of the metrics, a file left behind, another order of examples."""
    trial = kills.Trial(tmp_path, "rnn")
    run = tmp_path / "copy" / "run"
    run.parent.mkdir()
    assert kills.ended(kills.begin(trial.recipe, run)) == 0
    assert kills.differences(trial.whole, run) == []
    state = next(run.rglob("training.safetensors"))
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    (run / ".card.tmp").write_text("")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "logged"}\n')
    with run.with_suffix(".order").open("a") as file:
        file.write(json.dumps([3, [[1, 2]]]) + "\n")
    found = kills.differences(trial.whole, run)
    assert [line.split(":")[0] for line in found] == [
        "left behind",
        "differs",
        "differs",
        "other examples in steps [3]",
    ]


def test_a_process_dies_before_the_operation_that_is_asked_for(kills: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = os.fork()
    if not process:
        kills.dies_before(2, run)()
        run.mkdir()
        (run / "never").mkdir()
        os._exit(0)
    assert kills.ended(process) == -signal.SIGKILL
    assert list(run.iterdir()) == []
