"""A run as a service: answers equal `predict`'s however many ask, real clients work unchanged, and it ends in order."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import httpx
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from commands import Command, command_line, environment, write_recipe
from seqloom import train
from seqloom.cli.serve import is_at_home
from seqloom.serve.batcher import Pace
from seqloom.serve.limits import Limits
from serving import serving

pytest_plugins = ["command_fixtures"]

WORDS = ["".join("abcdefgh"[(start + step) % 8] for step in range(1 + start % 5)) for start in range(50)]
TARGET = "de"  # whatever it writes: clients know a list of languages


@cache
def german() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="seqloom-tests-"))
    return train(write_recipe(folder, languages=f"{{source: en, target: {TARGET}}}"), folder / "run").folder


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(german(), limits=Limits(rate="none")) as (found, _):
        yield found


def predicted(seqloom: Command, folder: Path, words: list[str], *options: str) -> list[dict[str, object]]:
    source = folder / "words.txt"
    source.write_text("".join(f"{word}\n" for word in words))
    answer = seqloom("predict", german(), source, "--format", "jsonl", "--threads", 1, *options)
    assert answer.code == 0, answer
    told = [json.loads(line) for line in answer.out.splitlines()]
    return [{key: value for key, value in one.items() if key != "line"} for one in told]


def asked_at_once(client: httpx.Client, words: list[str]) -> list[dict[str, object]]:
    def ask(word: str) -> dict[str, object]:
        answer = client.post("/v1/predict", json={"inputs": word})
        assert answer.status_code == 200, answer.text
        return answer.json()["predictions"][0]

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(ask, words))


def test_fifty_at_once_are_answered_as_predict_answers_them(
    client: httpx.Client, seqloom: Command, tmp_path: Path
) -> None:
    for served, alone in zip(asked_at_once(client, WORDS), predicted(seqloom, tmp_path, WORDS), strict=True):
        assert served["text"] == alone["text"]
        assert served["confidence"] == pytest.approx(alone["confidence"], abs=1e-5)
        scores = [[one["log_prob"] for one in answer["hypotheses"]] for answer in (served, alone)]  # type: ignore[attr-defined]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_requests_are_answered_together(seqloom: Command, tmp_path: Path) -> None:
    with serving(german(), pace=Pace(patience=0.2), limits=Limits(rate="none")) as (client, service):
        asked_at_once(client, WORDS[:16])
        told = service.figures.text().decode()
    batches = next(line for line in told.splitlines() if line.startswith("seqloom_batch_texts_count"))
    assert float(batches.split()[1]) < 16


def test_deterministic_answers_equal_predicts_to_the_last_bit(seqloom: Command, tmp_path: Path) -> None:
    with serving(german(), deterministic=True, limits=Limits(rate="none")) as (client, _):
        served = asked_at_once(client, WORDS)
    assert served == predicted(seqloom, tmp_path, WORDS, "--deterministic")


def test_what_is_wanted_is_told(client: httpx.Client) -> None:
    asked = {"inputs": "abc", "wanted": ["alignment", "attention", "beam"], "options": {"beam": 2, "n_best": 2}}
    answer = client.post("/v1/predict", json=asked).json()["predictions"][0]
    assert len(answer["hypotheses"]) == 2
    assert set(answer["hypotheses"][0]) == {"text", "truncated"}
    steps = len(answer["attention"]["weights"][0][0])
    assert [step for _, step in answer["alignment"]] == list(range(steps))
    assert answer["attention"]["source_tokens"][:3] == ["a", "b", "c"]
    assert answer["beam"]["nodes"]
    forced = client.post("/v1/predict", json={"inputs": ["abc", "h"], "prefix": "ba"}).json()["predictions"]
    assert [one["text"][:2] for one in forced] == ["ba", "ba"]


def test_pieces_of_a_stream_are_the_answer(client: httpx.Client) -> None:
    whole = client.post("/v1/predict", json={"inputs": "abcde"}).json()["predictions"][0]["text"]
    with client.stream("POST", "/v1/predict", json={"inputs": "abcde", "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event.split("\n") for event in answer.read().decode().strip().split("\n\n")]
    told = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))["text"]) for name, data in events]
    assert told[-1] == ("done", whole)
    assert "".join(text for name, text in told[:-1]) == whole


def test_scores_and_explanations_are_those_of_the_commands(
    client: httpx.Client, seqloom: Command, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("abc\tcba\n")
    alone = json.loads(seqloom("score", german(), tmp_path / "pairs.tsv", "--json").out)
    asked = {"pairs": [{"source": "abc", "target": "cba"}]}
    served = client.post("/v1/score", json=asked).json()["scores"][0]
    assert served["token_scores"] == pytest.approx(alone["token_scores"], abs=1e-5)
    answer = client.post("/v1/explain", json={"input": "abc", "target": "cba"}).json()
    assert [told["token"] for told in answer["output"]] == ["c", "b", "a", "<eos>"]
    assert answer["log_prob"] == pytest.approx(alone["log_prob"], abs=1e-4)
    moved = client.post("/v1/explain", json={"input": "abc", "target": "cba", "attend": ["1=2"]}).json()
    assert moved["weights"][0][0][0] != answer["weights"][0][0][0]


def test_the_description_needs_no_outside_host(client: httpx.Client) -> None:
    paths = client.get("/v1/openapi.json").json()["paths"]
    assert {"/translate", "/v1/predict", "/v1/score", "/v1/explain", "/v1/models"} <= set(paths)
    page = client.get("/docs").text
    assert "//cdn" not in page
    assert client.get("/static-offline-docs/swagger-ui-bundle.js").status_code == 200


# --- clients of LibreTranslate ---------------------------------------------------------------------------------------


def test_libretranslatepy_works_unchanged(client: httpx.Client) -> None:
    api = LibreTranslateAPI(str(client.base_url))
    text = client.post("/v1/predict", json={"inputs": "abc"}).json()["predictions"][0]["text"]
    assert api.translate("abc", "en", TARGET) == text
    assert api.translate("abc", "auto", TARGET) == text
    assert [one["code"] for one in api.languages()] == ["en", TARGET]
    assert api.detect("This is surely an English sentence.")[0]["language"] == "en"
    with_key = LibreTranslateAPI(str(client.base_url), "any")
    assert [one["code"] for one in with_key.languages()] == ["en", TARGET]  # a GET with a body


def test_deep_translator_works_unchanged(client: httpx.Client) -> None:
    translator = LibreTranslator("en", TARGET, api_key="any", custom_url=f"{client.base_url}/")
    text = client.post("/v1/predict", json={"inputs": "abc"}).json()["predictions"][0]["text"]
    assert translator.translate("abc") == text
    assert translator.translate_batch(["abc", "cab"])[0] == text


@pytest.mark.parametrize("how", ["json", "data", "params", "files"])
def test_parameters_come_in_every_form(client: httpx.Client, how: str) -> None:
    given: dict[str, object] = {"q": "abc", "source": "en", "target": TARGET}
    if how == "files":  # multipart
        given = {name: (None, str(value)) for name, value in given.items()}
    answer = client.post("/translate", **{how: given})  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert set(answer.json()) == {"translatedText"}


def test_lists_lines_alternatives_and_detection(client: httpx.Client) -> None:
    asked = {"q": ["ab", "cd\n\nef"], "source": "auto", "target": TARGET, "alternatives": 2}
    answer = client.post("/translate", json=asked).json()
    assert answer["translatedText"][1].count("\n") == 2
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "en"]
    assert len(answer["alternatives"][0]) == 2
    assert answer["translatedText"][0] not in answer["alternatives"][0]
    many = client.post("/translate", json={**asked, "q": "ab\n" * 100}).json()  # more lines than a request has texts
    assert many["translatedText"].count("\n") == 100
    plain = client.post("/translate", json={**asked, "alternatives": 0}).json()
    assert plain["translatedText"] == answer["translatedText"]


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_serves_until_sigterm_and_finishes_what_it_began() -> None:
    line = command_line("serve", german(), "--port", 0, "--drain", 1, "--rate", "none")
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "serving run\n"
        url = process.stderr.readline().split()[0]
        with httpx.Client(base_url=url, timeout=30) as client, ThreadPoolExecutor(8) as pool:
            _until_ready(client)
            told = client.get("/v1/models").json()
            assert (told["examples"], told["models"][0]["path"]) == (True, str(german()))
            assert client.get("/").headers["content-type"].startswith("text/html")
            process.send_signal(signal.SIGHUP)
            _until(lambda: 'seqloom_reloads_total{outcome="loaded"} 1' in client.get("/metrics").text)
            asked = [pool.submit(client.post, "/v1/predict", json={"inputs": WORDS}) for _ in range(8)]
            time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            ready = client.get("/ready")
            assert (ready.status_code, ready.headers["connection"]) == (503, "close")
            assert {answer.result().status_code for answer in asked} == {200}
        assert process.wait(20) == 0
        events = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert {"request", "reloaded", "stopping"} <= {event["event"] for event in events}
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("host", "keys", "names", "home"),
    [
        ("127.0.0.1", None, [], True),
        ("localhost", None, [], True),
        ("::1", None, [], True),
        ("127.0.0.1", Path("keys.sqlite"), [], False),
        ("127.0.0.1", None, ["translate.example.org"], False),
        ("0.0.0.0", None, [], False),
        ("example.org", None, [], False),
    ],
)
def test_training_examples_stay_at_home(host: str, keys: Path | None, names: list[str], home: bool) -> None:
    assert is_at_home(host, keys, names) == home


def _until_ready(client: httpx.Client) -> None:
    def is_ready() -> bool:
        try:
            return client.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    _until(is_ready)


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_html_keeps_its_tags(client: httpx.Client) -> None:
    def told(**more: object) -> dict[str, object]:
        answer = client.post("/translate", json={"source": "en", "target": TARGET, **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    first, second = (told(q=word)["translatedText"] for word in ("abc", "de"))
    page = "<p class='x'>abc <b>de</b></p>"
    marked = told(q=page, format="html")
    assert marked["translatedText"] == f"<p class='x'>{first} <b>{second}</b></p>"
    assert told(q=[page, "abc"], format="html")["translatedText"] == [marked["translatedText"], first]
    several = told(q=page, format="html", alternatives=2)
    assert several["translatedText"] == marked["translatedText"]
    assert all(str(one).startswith("<p class='x'>") for one in several["alternatives"])  # type: ignore[attr-defined]
    assert "detectedLanguage" in told(q=page, format="html", source="auto")
    broken = client.post("/translate", json={"q": "<![x y]>", "source": "en", "target": TARGET, "format": "html"})
    assert (broken.status_code, "not HTML that can be read" in broken.json()["error"]) == (400, True)
    odd = client.post("/translate", json={"q": "x", "source": "en", "target": TARGET, "format": "pdf"})
    assert (odd.status_code, odd.json()["error"]) == (400, "pdf format is not supported")
