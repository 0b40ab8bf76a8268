"""Two hundred who ask in the same moment, among others who ask for something else, leave or talk nonsense."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from commands import Command, command_line, environment, trained
from crowds import Asked, Place, Told, all_at_once, many_files, place_of

pytest_plugins = ["command_fixtures"]

COUNT = 200
WORDS = [
    "".join("abcdefgh"[(start * 3 + step * (1 + start % 7)) % 8] for step in range(1 + start % 9))
    for start in range(COUNT)
]
OTHERS = [
    (Asked.json("/v1/predict", inputs=["abc", "h"], n_best=2, options={"beam": 3}), 200),
    (Asked.json("/v1/predict", inputs="abcd", stream=True), 200),
    (Asked.json("/v1/score", pairs=[{"source": "abc", "target": "cba"}]), 200),
    (Asked.json("/v1/explain", input="abcde"), 200),
    (Asked.json("/v1/explain", input="fedcb", stream=True, form="packed", attend=["1=1"]), 200),
    (Asked.json("/translate", q="abc", source="en", target="ne"), 200),
    (Asked("/translate", b"q=abc&source=auto&target=ne&alternatives=2", kind="application/x-www-form-urlencoded"), 200),
    (Asked("/v1/predict", b'{"inputs": '), 400),
    (Asked.json("/v1/predict", inputs="abc", n_best=99), 422),
    (Asked.json("/v1/predict", inputs="abcdefgh", options={"beam": 8}), 200),
    (Asked("/v1/predict", b'{"inputs": "hgfedcba"}', leaves=True), 0),
    (Asked("/v1/explain", b'{"input": "abcdefgh", "stream": true}', leaves=True), 0),
]


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    """The real command."""
    line = command_line("serve", trained(), "--port", 0, "--rate", "none", "--deterministic", "--quiet")
    running = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.terminate()
        assert running.wait(30) == 0


@pytest.fixture(scope="module")
def place(process: subprocess.Popen[str]) -> Place:
    """Where it listens."""
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(2)]
    with httpx.Client(base_url=said[-1].split()[0], timeout=30) as client:
        until = time.monotonic() + 30
        while True:
            try:
                assert client.get("/ready").status_code == 200
                return place_of(client)
            except httpx.TransportError:
                assert time.monotonic() < until
                time.sleep(0.1)


def predicted(seqloom: Command, folder: Path) -> list[dict[str, object]]:
    """What `predict` says of every word, without the number of its line."""
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    answer = seqloom("predict", trained(), folder / "words.txt", "--format", "jsonl", "--threads", 1, "--deterministic")
    assert answer.code == 0, answer
    told = [json.loads(line) for line in answer.out.splitlines()]
    return [{key: value for key, value in one.items() if key != "line"} for one in told]


def one_prediction(told: Told) -> bytes:
    """The bytes of the one prediction of an answer."""
    assert told.status == 200, told
    return told.body.partition(b'"predictions":[')[2].removesuffix(b"]}")


def written(answer: dict[str, object]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def test_two_hundred_at_once_are_answered_as_predict_answers_them_byte_for_byte(
    place: Place, seqloom: Command, tmp_path: Path
) -> None:
    wanted = predicted(seqloom, tmp_path)
    every: list[tuple[Asked, int, int | None]] = []  # what is asked, its status, the number of its word
    for number, word in enumerate(WORDS):
        every.append((Asked.json("/v1/predict", inputs=word), 200, number))
        if number % 2:  # a hundred others
            every.append((*OTHERS[number // 2 % len(OTHERS)], None))
    with many_files(2048):
        told = all_at_once(place, [asked for asked, _, _ in every])
    assert [one.status for one in told] == [status for _, status, _ in every]
    served = {number: one for one, (_, _, number) in zip(told, every, strict=True) if number is not None}
    assert [one_prediction(served[number]) for number in range(COUNT)] == [written(answer) for answer in wanted]


def test_who_asks_alone_is_told_the_same(place: Place, seqloom: Command, tmp_path: Path) -> None:
    wanted = predicted(seqloom, tmp_path)
    for word, answer in list(zip(WORDS, wanted, strict=True))[:20]:
        (told,) = all_at_once(place, [Asked.json("/v1/predict", inputs=word)])
        assert one_prediction(told) == written(answer)


def test_a_run_is_loaded_anew_under_load_and_nobody_notices(place: Place, process: subprocess.Popen[str]) -> None:
    asked = [Asked.json("/v1/predict", inputs=word) for word in WORDS[:60]]
    asked += [Asked.json("/v1/explain", input="abcde", stream=True, form="packed")] * 20
    before = all_at_once(place, asked)
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        told = all_at_once(place, asked)
        assert [one.status for one in told] == [200] * len(asked)
        assert [one.body for one in told] == [one.body for one in before]
    url = f"http://{place[0]}:{place[1]}/metrics"
    until = time.monotonic() + 30
    while 'seqloom_reloads_total{outcome="loaded"} 3' not in httpx.get(url).text:
        assert time.monotonic() < until
        time.sleep(0.1)
