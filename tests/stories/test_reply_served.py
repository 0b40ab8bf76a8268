"""Smart Reply over HTTP: suggestions with all that led to them, a log of what became of them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import served_runs
from replying import replying
from replying_served import serving_replies
from seqloom.errors import SeqloomError
from seqloom.reply import bundle, feedback
from seqloom.serve.smart_reply import Replying, is_reply, opened
from serving import serving

QUESTION = "are you coming to the party tonight?"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "feedback.jsonl"


@pytest.fixture(scope="module")
def client(log: Path) -> Iterator[httpx.Client]:
    """A server that has nothing but a Smart Reply."""
    with serving_replies(log=log) as client:
        yield client


def asked(client: httpx.Client, **body: object) -> dict[str, object]:
    answer = client.post("/v1/reply", json={"message": QUESTION, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_it_answers_as_the_python_front_door_does(client: httpx.Client) -> None:
    told = asked(client, anyway=True)
    own = bundle.load(replying(), device="cpu", threads=1).suggest(QUESTION, anyway=True).as_dict()
    assert told["model"] == "run"
    assert [one["reply"] for one in told["suggestions"]] == [one["reply"] for one in own["suggestions"]]  # type: ignore[attr-defined, union-attr, index, call-overload]
    assert told["steps"] == own["steps"]
    assert len({one["intent"] for one in told["suggestions"]}) == len(told["suggestions"])  # type: ignore[attr-defined, arg-type]


def test_mails_are_read_as_mails(client: httpx.Client) -> None:
    mail = f"From: a@b.c\nSubject: Tonight\nContent-Type: text/html\n\n<p>{QUESTION}</p>"
    assert asked(client, message=mail)["text"] == "tonight <subject> are you coming to the party tonight ?"
    assert "<mail>" in str(asked(client, message=mail, form="text")["text"])
    assert asked(client, subject="Tonight")["text"] == "tonight <subject> are you coming to the party tonight ?"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "there is no text in it"),
        ("> are you coming?", "nothing of its own"),
        ("My uncle died on Sunday.", "the message seems sensitive: death: died"),
        ("<script>alert(1)</script>", None),
    ],
)
def test_no_suggestion_has_a_reason(client: httpx.Client, message: str, reason: str | None) -> None:
    told = asked(client, message=message)
    if reason is not None:
        assert told["suggestions"] == []
        assert str(told["reason"]).startswith(reason)


def test_what_is_served(client: httpx.Client) -> None:
    told = client.get("/v1/reply").json()
    assert told["log"] is True
    assert told["languages"] == ["en"]
    assert told["replies"] > 5


def test_the_log_says_what_became_of_suggestions(client: httpx.Client, log: Path) -> None:
    log.unlink(missing_ok=True)
    shown = ["Yes", "No"]
    for chosen, sent, outcome in (
        ("Yes", "Yes", "unchanged"),
        ("Yes", "Yes, at ten", "edited"),
        (None, None, "ignored"),
    ):
        body = {"shown": shown, "chosen": chosen, "sent": sent, "probability": 0.5}
        answer = client.post("/v1/reply/feedback", json=body)
        assert (answer.status_code, answer.json()) == (200, {"outcome": outcome})
    usage = feedback.usage(feedback.read(log))
    assert (usage.messages, usage.selected, usage.unchanged) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert all("message" not in json.loads(line) for line in log.read_text().splitlines())


BAD = [
    ({}, 422, "message"),
    ({"message": 3}, 422, "message"),
    ({"message": "x" * 10_001}, 422, "characters: 10,001 characters, the limit is 10,000"),
    ({"message": "x", "form": "fax"}, 422, "form"),
    ({"message": "x", "language": "../en"}, 422, "language"),
    ({"message": "x", "mesage": "y"}, 422, 'did you mean \\"message\\"'),
    ({"message": "\ud800"}, 422, "not valid Unicode"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD, ids=[row[2] for row in BAD])
def test_bad_questions(client: httpx.Client, body: dict[str, object], status: int, words: str) -> None:
    answer = client.post("/v1/reply", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert words in answer.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"shown": ["Yes"], "chosen": "No"}, "was not shown"),
        ({"shown": ["x"] * 11}, "shown"),
        ({"shown": ["x" * 10_001]}, "characters"),
        ({"probability": 2}, "probability"),
    ],
)
def test_bad_feedback_leaves_the_log_alone(
    client: httpx.Client, log: Path, body: dict[str, object], words: str
) -> None:
    before = log.read_bytes() if log.exists() else b""
    answer = client.post("/v1/reply/feedback", json=body)
    assert answer.status_code == 422
    assert words in answer.text
    assert (log.read_bytes() if log.exists() else b"") == before


def test_other_routes_of_a_server_without_other_runs(client: httpx.Client) -> None:
    answer = client.post("/v1/predict", json={"inputs": "x"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, "model: no run is served here")
    assert client.get("/v1/models").json()["models"] == []
    assert client.get("/").text == client.get("/reply").text
    assert client.get("/languages").status_code == 200
    assert "'self'" in client.get("/reply").headers["content-security-policy"]


def test_pages_of_other_origins_are_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/reply", json={"message": "x"}, headers={"origin": "https://evil.example"})
    assert answer.status_code == 403


def test_without_a_log_nothing_is_written() -> None:
    with serving_replies() as client:
        assert client.get("/v1/reply").json()["log"] is False
        answer = client.post("/v1/reply/feedback", json={"shown": ["Yes"], "chosen": "Yes"})
        assert answer.status_code == 422
        assert "keeps no log" in answer.text


def test_a_server_without_a_smart_reply_says_so() -> None:
    with serving(served_runs.reversing()) as (client, _):
        for answer in (client.get("/v1/reply"), client.post("/v1/reply", json={"message": "x"})):
            assert answer.status_code == 404
            assert "no Smart Reply is served here" in answer.text


def test_which_runs_are_smart_replies(tmp_path: Path) -> None:
    assert is_reply(replying())
    assert is_reply(replying() / bundle.FOLDER)
    assert not is_reply(served_runs.reversing())
    assert opened([], None, "cpu", 1) is None
    with pytest.raises(SeqloomError, match="2 runs of Smart Reply"):
        opened([replying(), replying()], None, "cpu", 1)
    with pytest.raises(SeqloomError, match="--reply-log without"):
        opened([], tmp_path / "log", "cpu", 1)
    assert isinstance(opened([replying()], None, "cpu", 1), Replying)
