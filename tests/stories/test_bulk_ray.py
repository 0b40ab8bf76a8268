"""`seqloom predict --engine ray`: the same shards on a Ray cluster, of this machine alone, whose workers may die."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from commands import LETTERS, Command, trained
from seqloom.api.cluster import AHEAD, Pool
from seqloom.errors import SeqloomError

ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'seqloom[cluster]')")
pytest_plugins = ["command_fixtures"]
pytestmark = pytest.mark.xdist_group("ray")  # one cluster for all


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    variables = {"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=variables)
    yield
    ray.shutdown()


ALL = -1


@dataclass(frozen=True)
class Numbers:
    """A question: numbers to be doubled. Some are deadly."""

    lines: tuple[int, ...]

    @property
    def halves(self) -> list[Numbers]:
        half = len(self.lines) // 2
        return [Numbers(self.lines[:half]), Numbers(self.lines[half:])]


def doubled(numbers: Numbers, fault: SeqloomError | None, once: str, deadly: int) -> list[int | str]:
    """Twice each; some kill their worker always, 7 only the first time."""
    if fault is not None:
        return [fault.code for _ in numbers.lines]
    if deadly in (*numbers.lines, ALL):
        os.kill(os.getpid(), signal.SIGKILL)
    if 7 in numbers.lines and not os.path.exists(once):
        open(once, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return [2 * number for number in numbers.lines]


def made(once: str, deadly: int) -> partial[list[int | str]]:
    return partial(doubled, once=once, deadly=deadly)


def asked(pool: Pool[Numbers, list[int | str]], count: int, size: int) -> list[int | str]:
    drawn: list[int] = []

    def questions() -> Iterator[Numbers]:
        for start in range(0, count, size):
            drawn.append(start)
            yield Numbers(tuple(range(start, start + size)))

    found: list[int | str] = []
    for taken, parts in enumerate(pool.answers(questions())):
        assert len(drawn) <= taken + AHEAD * pool.count, "no more is read ahead than is allowed"
        found += [one for part in parts for one in part]
    return found


def test_answers_come_in_order_whoever_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed once costs nothing, and a line that kills is found among its neighbours and told."""
    monkeypatch.setattr("seqloom.api.cluster.RETRIES", 1)
    said: list[str] = []
    with Pool(partial(made, str(tmp_path / "once"), 13), 2, said.append) as pool:
        found = asked(pool, 24, 2)
    assert found == [2 * number if number != 13 else "E_WORKER" for number in range(24)]
    assert pool.deaths == 1 + 2 * 2, "7 once; 12 and 13 twice, 13 twice"
    assert any("a worker died" in line for line in said)


def test_workers_that_die_at_once_are_no_fault_of_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.api.cluster.EARLY_DEATHS", 2)
    with (
        Pool(partial(made, str(tmp_path / "once"), ALL), 1, lambda line: None) as pool,
        pytest.raises(SeqloomError) as no,
    ):
        asked(pool, 64, 16)
    assert no.value.code == "E_WORKER"
    assert pool.deaths == 2


def broken() -> None:
    raise SeqloomError("E_BUNDLE", "no such model", where="here")


def test_what_a_worker_refuses_is_told_as_it_is() -> None:
    with Pool(broken, 1) as pool, pytest.raises(SeqloomError) as no:  # type: ignore[arg-type]
        list(pool.answers([Numbers((1,))]))
    assert (no.value.code, no.value.where) == ("E_BUNDLE", "here")


# --- the command ---------------------------------------------------------------------------------------------------


def written(path: Path, count: int) -> Path:
    lines = [LETTERS[i % 8 :][: 1 + i % 5] + LETTERS[i % 3 : 3 + i % 4] for i in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def killed_in_the_middle(monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Let a worker be killed when so many answers have come."""
    arrived, killed = Pool._arrived, []

    def watched(self: Pool[object, object]) -> object:  # type: ignore[type-var]
        if self.answered >= after and not killed and self._out:
            _, worker = next(iter(self._out.values()))
            killed.append(1)
            ray.kill(worker, no_restart=True)
        return arrived(self)

    monkeypatch.setattr(Pool, "_arrived", watched)
    return killed


def test_the_same_lines_as_one_prediction_though_a_worker_is_killed(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, whole = written(tmp_path / "in.txt", 300), tmp_path / "out", tmp_path / "whole"
    options = ("--buffer", 20, "--greedy", "--format", "tsv")
    assert seqloom("predict", trained(), source, "-o", whole, "--workers", 1, *options).code == 0
    killed = killed_in_the_middle(monkeypatch, after=4)
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 3, "--engine", "ray", *options)
    assert answer.code == 0, answer.err
    assert killed
    assert "a worker died" in answer.err
    assert out.read_bytes() == whole.read_bytes(), "no line lost, doubled or reordered"
    again = seqloom("predict", trained(), source, "-o", out, "--shards", 3, "--engine", "ray", *options)
    assert "3 of 3 shards are done already" in again.err
    one = seqloom("predict", trained(), source, "-o", out, "--shards", 3, "--shard", 1, "--quarantine", *options)
    assert "shard 1 of 3 is done already" in one.err, "they are the shards that any scheduler makes"


def test_poison_is_quarantined(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 40), tmp_path / "out"
    lines = source.read_bytes().splitlines()
    lines[4], lines[31] = b"\xff\xfe", b"a" * 30
    source.write_bytes(b"\n".join(lines) + b"\n")
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--engine", "ray", "--buffer", 10)
    assert answer.code == 0, answer.err
    assert "2 of them quarantined" in answer.err
    assert [number for number, line in enumerate(out.read_text().split("\n")[:-1]) if not line] == [4, 31]
    told = [json.loads(line) for line in (tmp_path / "out.quarantine.jsonl").read_text().splitlines()]
    assert [bad["line"] for bad in told] == [5, 32]


def test_what_cannot_be_asked_is_refused(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 10), tmp_path / "out"
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--engine", "ray", "--shortlist", 5)
    answer.refused("E_BUNDLE", 4)
