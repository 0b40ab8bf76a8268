"""What the server must survive: every row of the table, over HTTP, with status and wording."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from commands import Command, trained
from seqloom.serve import server
from seqloom.serve.batcher import Pace
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits
from seqloom.serve.service import Service
from seqloom.web import door, listening, logs
from serving import serving

pytest_plugins = ["command_fixtures"]

JSON = {"content-type": "application/json"}
Both = tuple[httpx.Client, Service]


@pytest.fixture(scope="module")
def served() -> Iterator[Both]:
    limits = Limits(characters=200, batch=4, beam=4, n_best=3, max_length=30, body=5000, rate="none", entries=3)
    with serving(trained(), limits=limits) as both:
        yield both


@pytest.fixture
def client(served: Both) -> httpx.Client:
    return served[0]


# --- /v1 -------------------------------------------------------------------------------------------------------------

BAD = [
    ('{"inputs', 400, "E_MALFORMED", "an object of JSON"),
    ("[1]", 400, "E_MALFORMED", "an object of JSON"),
    ("", 400, "E_MALFORMED", "an object of JSON"),
    ("[" * 4000, 400, "E_MALFORMED", ""),
    (b"\xff\xfe{}", 400, "E_MALFORMED", ""),
    ("{}", 422, "E_VALUE", "inputs: must be given"),
    ('{"inputs": 5}', 422, "E_VALUE", "expected text or a mapping of keys or a list"),
    ('{"inputs": "\\ud800"}', 422, "E_VALUE", "not valid Unicode"),
    ('{"inputs": "ab", "sream": true}', 422, "E_VALUE", 'did you mean "stream"'),
    ('{"inputs": "ab", "model": "rum"}', 422, "E_VALUE", 'did you mean "run"'),
    ('{"inputs": {"source": "ab", "tag": "x"}}', 422, "E_USAGE", "tag"),
    ('{"inputs": "ab", "n_best": 0}', 422, "E_VALUE", "n_best: expected at least 1"),
    ('{"inputs": "ab", "n_best": 4}', 422, "E_LIMIT", "n_best: 4 outputs, the limit is 3"),
    ('{"inputs": "ab", "options": {"beam": 0}}', 422, "E_VALUE", "beam: expected at least 1"),
    ('{"inputs": "ab", "options": {"beam": 5}}', 422, "E_LIMIT", "beam: 5 hypotheses, the limit is 4"),
    ('{"inputs": "ab", "options": {"strategy": {"kind": "sample", "samples": 99}}}', 422, "E_LIMIT", "beam: 99"),
    ('{"inputs": "ab", "options": {"risk": {"samples": 99}}}', 422, "E_LIMIT", "beam: 99"),
    ('{"inputs": "ab", "options": {"groups": 5}}', 422, "E_LIMIT", "beam: 5"),
    ('{"inputs": "ab", "options": {"beam": 2, "n_best": 3}}', 422, "E_VALUE", "n_best 3 is over the beam's size 2"),
    ('{"inputs": "ab", "options": {"max_length": 31}}', 422, "E_LIMIT", "max_length: 31 tokens, the limit is 30"),
    ('{"inputs": "ab", "options": {"min_length": 31}}', 422, "E_LIMIT", "max_length: 31 tokens"),
    ('{"inputs": "ab", "options": {"max_ratio": 9}}', 422, "E_LIMIT", "max_ratio"),
    ('{"inputs": "ab", "options": {"min_length": 9, "max_length": 3}}', 422, "E_VALUE", "min_length 9 is over"),
    ('{"inputs": "ab", "options": {"one_of": ["a", "b", "c", "d"]}}', 422, "E_LIMIT", "entries: 4"),
    ('{"inputs": "ab", "options": {"pattern": "("}}', 422, "", "pattern"),
    ('{"inputs": "ab", "options": {"batch_tokens": 9}}', 422, "E_VALUE", "batch_tokens is the server's"),
    ('{"inputs": "ab", "prefix": "Z"}', 422, "E_USAGE", "prefix: the model cannot say 'Z'"),
    ('{"inputs": ["a", "b", "c", "d", "e"]}', 422, "E_LIMIT", "batch: 5 texts, the limit is 4"),
    (json.dumps({"inputs": "a" * 201}), 422, "E_LIMIT", "characters: 201 characters, the limit is 200"),
    (json.dumps({"inputs": "a" * 199}), 422, "E_LONG", "the recipe's maximum is 20"),
    ('{"inputs": ["a", "b"], "stream": true}', 422, "E_VALUE", "one can be streamed"),
    ('{"inputs": "a", "n_best": 2, "stream": true, "options": {"beam": 2}}', 422, "E_USAGE", "n_best"),
]


@pytest.mark.parametrize(("body", "status", "code", "words"), BAD, ids=[str(row[0])[:60] for row in BAD])
def test_a_bad_request_is_refused_by_name(client: httpx.Client, body: str, status: int, code: str, words: str) -> None:
    answer = client.post("/v1/predict", content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    told = answer.json()["error"]
    assert words in told["message"]
    assert told["code"] == code or not code


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/score", '{"pairs": []}', "pairs: expected at least 1 entry"),
        ("/v1/score", '{"pairs": [{"source": "a"}]}', "pairs.0.target: must be given"),
        ("/v1/explain", '{"input": ""}', "an empty text has nothing to explain"),
        ("/v1/explain", '{"input": "ab", "attend": ["x"]}', "cannot be read"),
        ("/v1/explain", '{"input": "ab", "mask_heads": ["9.9"]}', "9"),
    ],
)
def test_the_other_routes_refuse_by_name(client: httpx.Client, path: str, body: str, words: str) -> None:
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_wrong_verbs_types_and_paths(client: httpx.Client) -> None:
    assert client.get("/v1/predict").status_code == 405
    assert client.post("/v1/predict", content="{}", headers={"content-type": "text/plain"}).status_code == 415
    nothing = client.get("/v1/nothing").json()["error"]
    assert (nothing["code"], nothing["fix"]) == ("E_NOT_FOUND", "/docs shows what can be asked")
    assert client.get("/translate").status_code == 405


# --- bodies ----------------------------------------------------------------------------------------------------------


def raw(client: httpx.Client, sent: bytes, wait: float = 5.0) -> bytes:
    """What a server says to bytes that no client would send."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=wait) as connection:
        connection.sendall(sent)
        told = b""
        while part := connection.recv(65536):
            told += part
        return told


HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_large_body_is_refused_by_its_length_before_it_is_sent(client: httpx.Client) -> None:
    assert raw(client, HEAD + b"Content-Length: 5001\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert client.post("/translate", content=b"q=" + b"a" * 5000).json() == {"error": "the body is over 5,000 bytes"}


def test_a_chunked_body_is_read_up_to_the_cap_and_no_further(client: httpx.Client) -> None:
    chunk = b"1000\r\n" + b"a" * 4096 + b"\r\n"
    told = raw(client, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 2 * chunk)  # and never an end
    assert told.startswith(b"HTTP/1.1 413")
    assert b"E_LARGE" in told


def test_a_body_longer_than_its_length_is_not_read_as_one(client: httpx.Client) -> None:
    told = raw(client, HEAD + b'Content-Length: 16\r\n\r\n{"inputs": "ab"}' + b"x" * 20_000)
    assert told.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 400" in told  # what follows is no request
    assert client.get("/health").status_code == 200


def test_slow_bodies_and_headers_are_closed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.3)
    told = raw(client, HEAD + b'Content-Length: 100\r\n\r\n{"inp')
    assert told.startswith(b"HTTP/1.1 408")
    assert raw(client, b"POST /v1/predict HT") == b""
    idle = [socket.create_connection((client.base_url.host, client.base_url.port)) for _ in range(100)]
    assert client.get("/health").status_code == 200
    time.sleep(0.5)
    assert {connection.recv(1) for connection in idle} == {b""}


# --- who may ask -----------------------------------------------------------------------------------------------------


def test_keys_open_and_are_nowhere_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)
    keys = Keys(tmp_path / "keys.sqlite")
    key, other = keys.add("anna"), keys.add("ben", "1/minute")
    ask, pair = {"inputs": "ab"}, {"q": "ab", "source": "en", "target": "ne"}
    with serving(trained(), keys=keys) as (client, _):

        def v1(**headers: str) -> int:
            return client.post("/v1/predict", json=ask, headers=headers).status_code

        assert (v1(), v1(Authorization="Bearer x"), v1(Authorization=f"Bearer {key}")) == (401, 401, 200)
        assert v1(**{"X-Api-Key": key}) == 200
        assert client.post("/v1/predict", json=ask).headers["www-authenticate"] == "Bearer"
        assert client.get("/metrics").status_code == 401
        missing, wrong = client.post("/translate", json=pair), client.post("/translate", json={**pair, "api_key": "x"})
        assert (missing.status_code, wrong.status_code) == (400, 403)
        assert missing.json() == {"error": "Please contact the server operator to get an API key"}
        assert wrong.json() == {"error": "Invalid API key"}
        assert client.post("/translate", params={**pair, "api_key": key}).status_code == 200
        assert client.post("/translate", data={**pair, "api_key": other}).status_code == 200
        slow = client.post("/translate", data={**pair, "api_key": other})
        assert slow.status_code == 429
        assert int(slow.headers["retry-after"]) >= 1
        assert slow.json()["error"].startswith("Slowdown: ")
        keys.revoke(key.split("_")[1])
        assert v1(Authorization=f"Bearer {key}") == 401
        said = caplog.text + repr([vars(record) for record in caplog.records])
        assert key not in said
        assert key.split("_", 2)[2] not in said
        assert "api_key" not in said


def test_wrong_keys_count_against_their_address(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.sqlite")
    with serving(trained(), keys=keys, limits=Limits(rate="2/minute")) as (client, _):
        tried = [client.get("/v1/models", headers={"X-Api-Key": "x"}) for _ in range(3)]
        assert [answer.status_code for answer in tried] == [401, 401, 429]
        assert int(tried[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_nobody_else_is_served_without_keys(seqloom: Command, host: str) -> None:
    said = seqloom("serve", "nothing", "--host", host).refused("E_USAGE", 2)
    assert "there are no keys" in said
    assert "--insecure" in said


def test_bad_command_lines_are_refused_before_anything_is_loaded(seqloom: Command, tmp_path: Path) -> None:
    assert "no such run" in seqloom("serve", tmp_path / "none", "--port", 0).refused("E_FILE", 6)
    assert "is no rate" in seqloom("serve", "x", "--rate", "often").refused("E_USAGE", 2)
    line = seqloom("serve", "x", "--deadline", "0").refused("E_USAGE", 2)
    assert "--deadline" in line
    assert "'seqloom serve --help'" in line
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = seqloom("serve", "x", "--port", taken.getsockname()[1]).refused("E_USAGE", 2)
        assert "cannot listen there: Address already in use" in said
    assert "two runs are called 'run'" in seqloom("serve", trained(), trained(), "--port", 0).refused("E_USAGE", 2)


# --- origins ---------------------------------------------------------------------------------------------------------


def test_other_pages_may_use_the_contract_and_nothing_else(client: httpx.Client) -> None:
    foreign = {"Origin": "http://example.org"}
    answer = client.post("/translate", data={"q": "ab", "source": "en", "target": "ne"}, headers=foreign)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    assert client.options("/translate", headers=foreign).headers["access-control-allow-origin"] == "*"
    for path in ("/v1/models", "/metrics", "/docs"):
        refused = client.get(path, headers=foreign)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "E_ORIGIN")
        assert "access-control-allow-origin" not in refused.headers
    own = {"Origin": f"http://{client.base_url.host}:{client.base_url.port}"}
    assert client.get("/v1/models", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"), [("example.org", 400), ("", 400), ("[", 400), ("localhost", 200), ("[::1]:5", 200)]
)
def test_a_name_that_is_not_ours_is_not_answered(client: httpx.Client, host: str, status: int) -> None:
    assert client.get("/v1/models", headers={"Host": host}).status_code == status


# --- load ------------------------------------------------------------------------------------------------------------


def test_a_full_queue_says_503_and_a_late_answer_504(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(trained(), pace=Pace(room=1, deadline=0.3)) as (client, service):
        busy = client.post("/v1/predict", json={"inputs": ["ab", "cd"]})
        assert (busy.status_code, busy.json()["error"]["code"], busy.headers["retry-after"]) == (503, "E_BUSY", "1")
        both = {"q": ["ab", "cd"], "source": "en", "target": "ne"}
        assert client.post("/translate", json=both).status_code == 503
        model = service.runs.models[0]
        monkeypatch.setattr(model, "predict", lambda *_, **__: time.sleep(0.6) or iter([]))
        late = client.post("/v1/predict", json={"inputs": "ab"})
        assert (late.status_code, late.json()["error"]["code"]) == (504, "E_DEADLINE")
        monkeypatch.undo()
        time.sleep(0.5)
        assert service.batcher.waiting == 0
        assert client.post("/v1/predict", json={"inputs": "ab"}).status_code == 200


def test_a_long_search_ends_when_its_client_is_told_504() -> None:
    asked = {"inputs": "abcdefgh", "options": {"beam": 10, "min_length": 100_000, "max_length": 100_000}}
    limits = Limits(max_length=100_000)
    with serving(trained(), pace=Pace(deadline=1.0), limits=limits) as (client, _):
        assert client.post("/v1/predict", json=asked).status_code == 504
        time.sleep(0.3)  # the whole of it would take minutes
        assert client.post("/v1/predict", json={"inputs": "ab"}).status_code == 200


def test_work_of_a_client_that_left_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(trained()) as (client, service):
        begun: list[object] = []
        model = service.runs.models[0]
        real = model.predict

        def slow(texts: list[str], *rest: object, **options: object) -> Iterator[object]:
            begun.append(texts)
            time.sleep(0.5)
            return real(texts, *rest, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(model, "predict", slow)
        place = urlsplit(str(client.base_url)).netloc
        one, two = (http.client.HTTPConnection(place) for _ in range(2))
        one.request("POST", "/v1/predict", '{"inputs": "ab"}', JSON)
        time.sleep(0.2)  # it is being answered
        two.request("POST", "/v1/predict", '{"inputs": "cd"}', JSON)
        time.sleep(0.1)
        assert service.batcher.waiting == 1
        two.close()
        time.sleep(0.1)
        assert service.batcher.waiting == 0
        assert one.getresponse().status == 200
        assert begun == [["ab"]]


def test_our_own_mistake_is_a_500_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)

    def fail(*_: object, **__: object) -> None:
        raise ValueError("the text was: a secret")

    with serving(trained()) as (client, service):
        monkeypatch.setattr(service.runs.models[0], "predict", fail)
        for answer in (
            client.post("/v1/predict", json={"inputs": "secret"}),
            client.post("/translate?q=secret&source=en&target=ne"),
        ):
            assert answer.status_code == 500
            assert "secret" not in answer.text
        assert "secret" not in caplog.text + repr([vars(record) for record in caplog.records])
        assert any("ValueError" in repr(vars(record)) for record in caplog.records)
        monkeypatch.undo()
        assert client.post("/v1/predict", json={"inputs": "ab"}).status_code == 200


def test_labels_of_figures_cannot_be_invented(served: Both) -> None:
    client, service = served
    for number in range(5):
        client.get(f"/v1/made-up-{number}?q=secret")
        client.request(f"MAKE{number}", "/v1/models")
    told = service.figures.text().decode()
    assert "made-up" not in told
    assert "MAKE" not in told
    assert "secret" not in told
    assert 'route="other",status="404"' in told


# --- a run that changes ----------------------------------------------------------------------------------------------


def test_a_corrupt_bundle_leaves_the_old_model_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WATCH_SECONDS", 0.05)
    run = Path(shutil.copytree(trained(), tmp_path / "run"))
    card = run / "bundle" / "card.json"
    good = card.read_bytes()
    with serving(run) as (client, service):
        first = service.runs.models[0]
        before = client.post("/v1/predict", json={"inputs": "ab"}).json()
        card.write_bytes(good[:100])
        _until(lambda: b'outcome="refused"} 1' in service.figures.text())
        assert service.runs.models[0] is first
        assert client.post("/v1/predict", json={"inputs": "ab"}).json() == before
        card.write_bytes(good)
        _until(lambda: service.runs.models[0] is not first)
        assert client.post("/v1/predict", json={"inputs": "ab"}).json() == before


def _until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
