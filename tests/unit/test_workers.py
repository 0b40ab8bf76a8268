"""Processes that share the work of prediction: the same answers in the same order, and every fault told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path

import pytest
import torch

from commands import LETTERS, trained
from seqloom.api import workers as staff
from seqloom.api.load import load, load_ensemble
from seqloom.api.options import Options
from seqloom.api.workers import Workers, ahead
from seqloom.errors import SeqloomError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
TEXTS = [LETTERS[i % 5 :][: 1 + i % 4] + LETTERS[i % 7] for i in range(60)] + ["", "  "]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staff, "FEW_TOKENS", 8)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("wishes", [{}, {"beam": 1}, {"n_best": 2, "beam": 3}, {"deterministic": True}], ids=str)
def test_answers_are_those_of_one_process(count: int, wishes: dict[str, object]) -> None:
    options = Options.model_validate({**wishes, "batch_tokens": 64})
    alone, together = load(trained(), threads=1), load(trained(), threads=1, workers=count)
    ours, theirs = (list(model.predict(TEXTS, options)) for model in (alone, together))
    assert [one.source for one in theirs] == TEXTS
    for one, other in zip(ours, theirs, strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert len(one.hypotheses) == len(other.hypotheses)
    assert together.workers is not None
    together.workers.stop()


def test_other_options_reach_workers_that_were_forked_before() -> None:
    model = load(trained(), workers=2)
    for length in (3, 5, 3):
        options = Options(min_length=length, max_length=length, batch_tokens=32)
        assert {len(one.tokens) for one in model.predict(TEXTS[:40], options)} == {length}


def test_an_ensemble_has_workers_too() -> None:
    together = load_ensemble([trained(), trained()], workers=2)
    assert together.workers is not None
    alone = load_ensemble([trained(), trained()])
    assert [one.text for one in together(TEXTS)] == [one.text for one in alone(TEXTS)]


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    assert Workers[int, int](2).answers(lambda n: n * n, range(20)) == [n * n for n in range(20)]
    assert torch.get_num_threads() == before


def test_an_error_of_a_worker_is_told_as_it_was() -> None:
    def refuses(place: int) -> int:
        if place == 0:
            raise SeqloomError("E_LONG", "what", where="here", fix="that")
        time.sleep(0.05)
        return place

    with pytest.raises(SeqloomError) as caught:
        Workers[int, int](2).answers(refuses, range(6))
    assert caught.value.line == "seqloom: error[E_LONG]: what; here; that"


def test_a_worker_that_dies_is_told_and_the_next_work_is_done() -> None:
    here = os.getpid()

    def dies(place: int) -> int:
        if os.getpid() != here and place < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return place

    workers = Workers[int, int](2)
    with pytest.raises(SeqloomError) as caught:
        workers.answers(dies, range(8))
    assert caught.value.code == "E_WORKER"
    assert workers.answers(lambda place: place, range(8), key="other") == list(range(8))


def test_workers_leave_with_the_process_they_work_for(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom seqloom.api.workers import Workers\n"
        "here = os.getpid()\n"
        "def answer(place):\n"
        "    if os.getpid() != here:\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(30)\n"
        "Workers(2).answers(answer, range(4))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    for _ in range(600):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
        time.sleep(0.05)
    worker = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    for _ in range(200):
        if not _is_running(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived the process that it worked for")


def _is_running(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("workers", [-1, -5])
def test_fewer_than_none_are_refused(workers: int) -> None:
    with pytest.raises(SeqloomError, match="at least 1"):
        load(trained(), workers=workers)


def test_answers_that_are_found_ahead_keep_their_order_and_their_surroundings() -> None:
    known: ContextVar[int] = ContextVar("known", default=0)
    known.set(7)
    found = ahead(lambda question: (question, known.get(), threading.current_thread().name), range(20))
    assert [answer[:2] for answer in found] == [(question, 7) for question in range(20)]


def test_what_goes_wrong_ahead_is_told_in_its_turn_and_the_rest_is_let_go() -> None:
    asked: list[int] = []

    def answer(question: int) -> int:
        asked.append(question)
        if question == 2:
            raise SeqloomError("E_DIVERGED", "no numbers")
        time.sleep(0.001)
        return question

    found = ahead(answer, range(1000))
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(SeqloomError, match="no numbers"):
        next(found)
    assert len(asked) < 1000, "nobody wants the others any more"
