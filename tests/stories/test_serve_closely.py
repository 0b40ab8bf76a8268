"""What the page asks of a server: explanations while answers are made, edits, diagnoses, neighbours, files, ranks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import served_runs
from seqloom.api.load import load
from seqloom.probe.page import packed_answer
from seqloom.serve.limits import Limits
from seqloom.serve.page import OF_REPLY, OF_THE_PROBE, OWN, PATHS
from serving import serving

TEXT = "ant bee cat"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    runs = [served_runs.reversing(), served_runs.heads()]
    with serving(*runs, limits=Limits(rate="none")) as (found, service):
        service.shows_examples = True
        yield found


def streamed(answer: httpx.Response) -> tuple[str, dict[str, object]]:
    """The pieces joined, and what is told at the end."""
    events = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    told = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
    assert told[-1][0] == "done", told[-1]
    return "".join(data["text"] for _, data in told[:-1]), told[-1][1]


def explained(client: httpx.Client, text: str = TEXT, **more: object) -> tuple[str, dict[str, object]]:
    return streamed(client.post("/v1/explain", json={"input": text, "stream": True, "form": "packed", **more}))


# --- explanations while answers are made -----------------------------------------------------------------------------


def test_pieces_are_the_answer_that_is_explained(client: httpx.Client) -> None:
    said, told = explained(client)
    plain = client.post("/v1/predict", json={"inputs": TEXT}).json()["predictions"][0]
    assert said == told["answer"]["answer"] == plain["text"]
    assert told["confidence"] == pytest.approx(plain["confidence"], abs=1e-5)
    model = load(served_runs.reversing(), device="cpu", threads=1)
    assert told["answer"] == json.loads(json.dumps(packed_answer(model.explain(TEXT, likeliest=5))))


def test_an_answer_begins_with_chosen_tokens_and_may_end_with_them(client: httpx.Client) -> None:
    said, told = explained(client, begin=["cat", "dog"])
    assert said.startswith("cat dog")
    assert (told["begun"], told["confidence"]) == ("cat dog", None)
    said, told = explained(client, begin=["cat", "<eos>"])
    assert said == told["answer"]["answer"] == "cat"
    assert told["answer"]["tree"] is None
    whole = client.post("/v1/explain", json={"input": TEXT, "begin": ["dog"]}).json()
    assert whole["answer"].startswith("dog")


def test_edits_change_the_answer_that_is_streamed_and_nobody_elses(client: httpx.Client) -> None:
    before, _ = explained(client)
    moved, told = explained(client, attend=["1=1"])
    assert moved != before, "the first token looks at the first word, and says it"
    assert told["confidence"] is None
    masked, _ = explained(client, model="heads", mask_heads=["1.1", "encoder.2.2"])
    assert (
        masked
        == client.post(
            "/v1/explain", json={"input": TEXT, "model": "heads", "mask_heads": ["1.1", "encoder.2.2"]}
        ).json()["answer"]
    )
    assert explained(client)[0] == before


def test_a_reference_brings_a_diagnosis(client: httpx.Client) -> None:
    _, told = explained(client, reference="cat ant")
    said = told["diagnosis"]
    assert said["reference"] == "cat ant"
    assert said["verdict"] in ("model error", "search error")
    right = explained(client)[0]
    assert explained(client, reference=right)[1]["diagnosis"]["verdict"] == "right"
    plain = client.post("/v1/explain", json={"input": TEXT, "reference": "cat ant"}).json()
    assert plain["diagnosis"] == said


def test_lines_are_answered_one_by_one_and_one_is_looked_into(client: httpx.Client) -> None:
    text = "ant bee\n\ncat dog"
    said, told = explained(client, text, part=1)
    assert said == client.post("/v1/predict", json={"inputs": text}).json()["predictions"][0]["text"]
    assert (told["parts"], told["part"], told["answer"]["text"]) == (["ant bee", "cat dog"], 1, "cat dog")


def test_of_too_many_weights_the_mean_is_drawn(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.serve.explaining.MOST_WEIGHTS", 50)
    _, told = explained(client, model="heads")
    assert told["answer"]["weights_left_out"] > 50
    assert told["answer"]["attention"]["source"]["shape"][:2] == [1, 1]
    refused = client.post("/v1/explain", json={"input": TEXT, "model": "heads"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_LIMIT")


WRONG = [
    ({"reference": "x", "begin": ["cat"]}, "E_VALUE", "a diagnosis is of the answer that the model gives by itself"),
    ({"begin": ["zebra"]}, "E_USAGE", "is not in the vocabulary"),
    ({"begin": ["cat"], "options": {"prefix": "cat"}}, "E_USAGE", "begins with tokens or with a prefix"),
    ({"attend": ["nonsense"]}, "E_USAGE", "cannot be read"),
    ({"mask_heads": ["9.9"]}, "E_USAGE", "layer 9"),
    ({"reference": "x" * 20_000}, "E_LIMIT", "the limit is 10,000"),
    ({"form": "neat"}, "E_VALUE", "form"),
    ({"part": -1}, "E_VALUE", "part"),
]


@pytest.mark.parametrize(("asked", "code", "said"), WRONG)
def test_what_cannot_be_asked_is_told(client: httpx.Client, asked: dict[str, object], code: str, said: str) -> None:
    answer = client.post("/v1/explain", json={"input": TEXT, **asked})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, code), answer.text
    assert said in answer.json()["error"]["message"]


def test_what_is_found_wrong_in_a_stream_is_an_event(client: httpx.Client) -> None:
    answer = client.post("/v1/explain", json={"input": TEXT, "stream": True, "begin": ["zebra"]})
    name, data = answer.text.strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "E_USAGE"


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_the_nearest_training_example_of_one_is_itself(client: httpx.Client) -> None:
    first = (served_runs.reversing().parent / "pairs.tsv").read_text().splitlines()[0].split("\t")
    for _ in range(2):  # gathered, and kept
        told = client.post("/v1/neighbours", json={"input": first[0], "count": 3}).json()
        assert (told["neighbours"][0]["source"], told["neighbours"][0]["target"]) == tuple(first)
        assert told["neighbours"][0]["distance"] == pytest.approx(0, abs=1e-4)
        assert len(told["neighbours"]) == 3
    assert "/" not in json.dumps(told), "where the data lie is nobody's business"


def test_training_examples_are_shown_to_nobody_else() -> None:
    with serving(served_runs.reversing()) as (client, _):
        refused = client.post("/v1/neighbours", json={"input": TEXT})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_VALUE")
        assert "not shown" in refused.json()["error"]["message"]
        told = client.get("/v1/models").json()
        assert (told["examples"], "path" in told["models"][0]) == (False, False)


def test_training_data_that_are_gone(tmp_path: Path) -> None:
    run = Path(shutil.copytree(served_runs.heads(), tmp_path / "run"))
    for name in ("recipe.yaml", "data.json"):  # a bundle alone does not know where they lie
        (run / name).unlink()
    with serving(run) as (client, service):
        service.shows_examples = True
        refused = client.post("/v1/neighbours", json={"input": TEXT})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_USAGE"), refused.text
        assert "cannot be read here" in refused.json()["error"]["message"]


# --- other kinds of runs ---------------------------------------------------------------------------------------------

KINDS = {"labels": "labels", "tags": "tags", "language": "continuation", "heads": "text"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_text_run_is_explained(kind: str) -> None:
    run = getattr(served_runs, kind)()
    with serving(run) as (client, _):
        about = client.get("/v1/models").json()["models"][0]
        assert (about["reads"], about["writes"]) == ("text", KINDS[kind])
        said, told = explained(client, "day 3 was cold" if kind == "labels" else TEXT)
        assert said == told["answer"]["answer"]
        assert (told["confidence"] is None) == (kind == "language"), "there is no one right way to go on"


def test_candidates_are_ranked() -> None:
    with serving(served_runs.ranking(), served_runs.reversing()) as (client, _):
        about = client.get("/v1/models").json()["models"]
        assert [one["writes"] for one in about] == ["ranking", "text"]
        asked = {"input": "tell me of red and blue or sky", "top": 3, "match": True}
        told = client.post("/v1/rank", json=asked).json()
        scores = [one["score"] for one in told["candidates"]]
        assert (len(scores), scores) == (3, sorted(scores, reverse=True))
        assert told["match"]["candidate"] == told["text"] == told["candidates"][0]["text"]
        for path, model in (("/v1/rank", "reversing"), ("/v1/explain", "ranking")):
            refused = client.post(path, json={"input": TEXT, "model": model})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_VALUE")
        assert [one["code"] for one in client.get("/languages").json()] == ["en", "en-x-reversed"]
        assert client.post("/v1/rank", json={**asked, "top": 99}).json()["error"]["code"] == "E_LIMIT"


def test_two_runs_of_the_same_languages_are_one_way_to_translate(client: httpx.Client) -> None:
    told = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert told == {"en": ["en-x-reversed"], "en-x-reversed": []}


# --- files -----------------------------------------------------------------------------------------------------------


def sent(client: httpx.Client, path: str, content: bytes, name: str = "a.png", **asked: object) -> httpx.Response:
    return client.post(path, files={"file": (name, content)}, data={"request": json.dumps(asked)})


@pytest.fixture(scope="module")
def seeing() -> Iterator[httpx.Client]:
    runs = [served_runs.pictures(), served_runs.reversing()]
    with serving(*runs, limits=Limits(rate="none", upload=20_000)) as (found, _):
        yield found


def picture() -> Path:
    return served_runs.pictures().parent / "blocks" / "0.png"


def test_a_picture_is_answered_as_predict_answers_it(seeing: httpx.Client) -> None:
    alone = load(served_runs.pictures(), device="cpu", threads=1)(str(picture()))
    told = sent(seeing, "/v1/predict/file", picture().read_bytes()).json()["predictions"][0]
    assert (told["text"], told["source"]) == (alone.text, "a.png")
    said, shown = streamed(sent(seeing, "/v1/explain/file", picture().read_bytes(), stream=True, form="packed"))
    assert said == shown["answer"]["answer"] == alone.text
    assert shown["answer"]["text"] == "a.png"
    assert shown["answer"]["picture"]["uri"].startswith("data:image/png;base64,")
    judged = sent(seeing, "/v1/explain/file", picture().read_bytes(), reference="green left").json()
    assert "seqloom-upload" not in json.dumps(judged), "where the file lay is nobody's business"
    assert judged["diagnosis"]["reference"] == "green left"


def test_sound_is_heard() -> None:
    clip = (served_runs.sound().parent / "tones" / "0.wav").read_bytes()
    with serving(served_runs.sound()) as (client, _):
        about = client.get("/v1/models").json()["models"][0]
        assert (about["reads"], ".wav" in about["files"]) == ("sound", True)
        _, shown = streamed(sent(client, "/v1/explain/file", clip, "a.wav", stream=True, form="packed"))
        assert shown["answer"]["signal"]["shape"][0] == 12


def test_files_that_are_not_what_they_say(seeing: httpx.Client) -> None:
    for content in (b"", b"no picture at all", picture().read_bytes()[:60]):
        refused = sent(seeing, "/v1/predict/file", content, "../../etc/passwd")
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_DATA"), refused.text
        assert "passwd" in refused.json()["error"]["message"]
        assert "/" not in refused.json()["error"]["message"]


def test_forms_that_cannot_be_read(seeing: httpx.Client) -> None:
    content = picture().read_bytes()
    assert sent(seeing, "/v1/predict/file", b"x" * 20_500).status_code == 413
    assert seeing.post("/v1/explain/file", json={}).json()["error"]["code"] == "E_MEDIA"
    cases = [
        ({"data": {"request": "{}"}, "files": {"other": ("a.png", content)}}, 400, "E_MALFORMED"),
        ({"data": {"request": "{"}, "files": {"file": ("a.png", content)}}, 400, "E_MALFORMED"),
        ({"data": {"request": '{"sream": 1}'}, "files": {"file": ("a.png", content)}}, 422, "E_VALUE"),
        (
            {"content": b"--x\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            400,
            "E_MALFORMED",
        ),
        ({"content": b"", "headers": {"content-type": "multipart/form-data"}}, 400, "E_MALFORMED"),
    ]
    for more, status, code in cases:
        refused = seeing.post("/v1/explain/file", **more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code), refused.text


def test_only_so_many_files_are_held_at_once(seeing: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.serve.guard.MOST_UPLOADS", 0)
    refused = sent(seeing, "/v1/predict/file", picture().read_bytes())
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "E_BUSY")
    assert refused.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert sent(seeing, "/v1/predict/file", picture().read_bytes()).status_code == 200


def test_a_clients_path_is_never_opened(seeing: httpx.Client) -> None:
    for path, body in (
        ("/v1/predict", {"inputs": str(picture())}),
        ("/v1/explain", {"input": str(picture())}),
        ("/v1/score", {"pairs": [{"source": str(picture()), "target": "x"}]}),
        ("/v1/neighbours", {"input": str(picture())}),
    ):
        refused = seeing.post(path, json={**body, "model": "pictures"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E_VALUE"), path
    asked = {"q": str(picture()), "source": "source", "target": "target"}
    assert seeing.post("/translate", json=asked).status_code == 400
    assert sent(seeing, "/v1/predict/file", b"text", model="reversing").json()["error"]["code"] == "E_VALUE"


# --- the page's files ------------------------------------------------------------------------------------------------


def test_the_page_and_its_files_are_sent_with_a_strict_policy(client: httpx.Client) -> None:
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert client.get(path, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    assert client.get("/page/page.py").status_code == 404
    assert client.get("/page/../service.py").status_code == 404
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_every_file_beside_the_page_is_sent_and_asks_no_other_host() -> None:
    import re
    from importlib import resources

    own = {one.name for one in (resources.files("seqloom.serve") / "static").iterdir()}
    assert own == {*OWN, *OF_REPLY, "index.html", "reply.html"}
    probes = resources.files("seqloom.probe") / "static"
    texts = [(probes / name).read_text() for name in OF_THE_PROBE]
    texts += [(resources.files("seqloom.serve") / "static" / name).read_text() for name in own]
    for text in texts:
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|XMLHttp|\sstyle=", text
        )
