"""A whole study: made from files or runs, rated over HTTP by several people, killed on the way, and told in the end."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from random import Random

import httpx
import pytest

from commands import Command, trained
from rating import BAD, GOOD, REFERENCES, SOURCES, material, process, serving, study
from seqloom.rate.report import study_result
from seqloom.rate.store import Store

pytest_plugins = ["command_fixtures"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, lines in (("s", SOURCES), ("r", REFERENCES), ("good", GOOD), ("bad", BAD)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def finish(client: httpx.Client, rng: Random | None = None) -> set[str]:
    """Rate everything: `the sentence` is good, what equals the reference too; with `rng`, whatever comes."""
    told = client.get("/api/study").json()
    seen = set()
    while told["next"] <= told["items"]:
        number = told["next"]
        task = client.get(f"/api/tasks/{number}").json()
        seen.add(json.dumps(task))
        for output in task["outputs"]:
            good = output["text"].startswith("the sentence") or output["text"] in task["references"]
            for question in ("adequate", "fluent", "rank"):
                value: bool | int = good if rng is None else rng.random() < 0.5
                if question == "rank":
                    value = 1 if value else 2
                body = {"output": output["letter"], "question": question, "value": value}
                told = client.put(f"/api/tasks/{number}/rating", json=body).json()
                assert told["saved"] is True
    assert told["done"] == told["items"]
    return seen


def test_three_raters_and_the_results(seqloom: Command, files: Path) -> None:
    path = files / "study"
    systems = [f"ours={files / 'good'}", f"theirs={files / 'bad'}"]
    names = ["--rater", "anna", "--rater", "ben"]
    made = seqloom(
        "rate", "new", path, *systems, "--source", files / "s", "--reference", files / "r", "--checks", 9, *names
    )
    assert made.code == 0, made.err
    assert "12 items, 2 systems (ours, theirs)" in made.err
    assert "3 references, 3 damaged, 3 repeated" in made.err
    with serving(path) as served:
        served.store.add("carl")
        with served.client("anna") as anna, served.client("ben") as ben, served.client("carl") as carl:
            seen = finish(anna)
            finish(ben)
            finish(carl, Random(2))
    assert not any(word in text for text in seen for word in ("ours", "theirs", "damaged", "system"))
    told = seqloom("rate", "results", path)
    assert told.code == 0, told.err
    for words in ("ours : theirs", "carl", "careless", "Krippendorff's alpha", "Cohen's kappa", "chrF2"):
        assert words in told.out
    found = json.loads(seqloom("rate", "results", path, "--json", "--careful", "--csv", files / "out.csv").out)
    assert [(one["name"], one["careless"], one["counts"]) for one in found["raters"]] == [
        ("anna", False, True),
        ("ben", False, True),
        ("carl", True, False),
    ]
    for question in found["questions"]:
        assert question["pairs"][0]["better"] == "ours"
        assert question["agreement"]["alpha"] == 1
    assert [one["mean"]["value"] for one in found["questions"][0]["systems"]] == [100, 0]
    rows = list(csv.DictReader((files / "out.csv").open()))
    assert {row["rater"] for row in rows} == {"anna", "ben", "carl"}


def test_one_command_from_a_run_and_its_test_set(seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "study"
    made = seqloom(
        "rate", "new", path, f"a={trained()}", f"b={trained()}", "--items", 5, "--seed", 3, "--device", "cpu"
    )
    assert made.code == 0, made.err
    with Store(path) as store:
        plan = store.plan
    assert (len(plan.items), plan.systems) == (5, ("a", "b"))
    assert all(one.systems == (0, 1) for task in plan.tasks for one in task.candidates if one.role == "output")
    assert [one["kind"] for one in plan.metrics] == ["exact", "cer"], "the run's own metrics are compared with"
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("abc\tcba\nfed\tdef\n")
    made = seqloom("rate", "new", tmp_path / "other", trained(), "--data", pairs, "--device", "cpu")
    assert made.code == 0, made.err
    assert "2 items, 1 systems" in made.err
    assert "questions: adequate, fluent;" in made.err
    (tmp_path / "sources").write_text("abc\n\nfed\n")
    made = seqloom("rate", "new", tmp_path / "bare", trained(), "--source", tmp_path / "sources", "--device", "cpu")
    assert made.code == 0, made.err
    assert "3 items, 1 systems" in made.err
    assert "references" not in made.err


def test_one_output_alone_has_one_place(tmp_path: Path) -> None:
    same = material(SOURCES[:1], REFERENCES[:1], one=["the same"], two=["the same"])
    path = study(tmp_path / "study", same, questions="rank", checks=0)
    with serving(path) as served, served.client() as client:
        assert len(client.get("/api/tasks/1").json()["outputs"]) == 1
        bodies = [{"output": "A", "question": "rank", "value": value} for value in (1, 2)]
        assert [client.put("/api/tasks/1/rating", json=body).status_code for body in bodies] == [200, 422]
        found = study_result(served.store)["rank"]
    assert [one.mean.value for one in found.systems if one.mean] == [50, 50]
    assert (found.pairs[0].ties, found.pairs[0].sign_p) == (1, 1)


def test_hidden_references_are_not_told(tmp_path: Path) -> None:
    with serving(study(tmp_path / "study", shows_reference=False)) as served, served.client() as client:
        assert client.get("/api/tasks/1").json()["references"] == []
    with serving(study(tmp_path / "other")) as served, served.client() as client:
        assert len(client.get("/api/tasks/1").json()["references"]) == 1


def test_answers_are_told_again_changed_and_undone(tmp_path: Path) -> None:
    path = study(tmp_path / "study", raters=("anna", "ben"))

    def answers(client: httpx.Client) -> dict[str, object]:
        (output,) = [one for one in client.get("/api/tasks/2").json()["outputs"] if one["letter"] == "A"]
        return dict(output["answers"])

    with serving(path) as served, served.client() as client:
        for question, value in (("adequate", True), ("fluent", False), ("adequate", False)):
            client.put("/api/tasks/2/rating", json={"output": "A", "question": question, "value": value})
        assert answers(client) == {"adequate": False, "fluent": False}
    with serving(path) as served, served.client() as client, served.client("ben") as other:
        assert client.post("/api/undo").json()["number"] == 2
        assert answers(client) == {"adequate": True, "fluent": False}
        client.put("/api/tasks/2/rating", json={"output": "A", "question": "fluent", "value": None})
        assert answers(client) == {"adequate": True}
        assert answers(other) == {}
        assert other.post("/api/undo").json()["number"] is None


def test_nothing_acknowledged_is_lost_when_it_is_killed(tmp_path: Path) -> None:
    path = study(tmp_path / "study", questions="direct", checks=0)
    said: dict[tuple[int, str], int] = {}
    for attempt in range(3):
        with process(path) as (running, links):
            url, _, token = links["anna"].partition("/#")
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
                for number in range(4 * attempt + 1, 4 * attempt + 5):
                    for letter in "AB":
                        value = 10 * number % 100
                        body = {"output": letter, "question": "direct", "value": value}
                        assert client.put(f"/api/tasks/{number}/rating", json=body).status_code == 200
                        said[number, letter] = value
            running.send_signal(signal.SIGKILL)
            running.wait(10)
    with serving(path) as served, served.client() as client:
        for (number, letter), value in said.items():
            outputs = {one["letter"]: one["answers"] for one in client.get(f"/api/tasks/{number}").json()["outputs"]}
            assert outputs[letter] == {"direct": value}
        assert client.get("/api/study").json()["done"] == 12


def test_links_have_the_name_that_the_page_is_reached_by(tmp_path: Path) -> None:
    with process(study(tmp_path / "study"), "--name", "rate.example", "--host", "127.0.0.2") as (_, links):
        assert links["anna"].startswith("http://rate.example:")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_when_it_is_told_to(tmp_path: Path, number: signal.Signals, code: int) -> None:
    path = study(tmp_path / "study")
    with process(path, "--rater", "ben") as (running, links):
        assert list(links) == ["anna", "ben"]
        url = links["ben"].partition("/#")[0]
        while True:
            try:
                assert httpx.get(url).status_code == 200
                break
            except httpx.TransportError:
                continue
        running.send_signal(number)
        assert running.wait(20) == code
    assert not (tmp_path / "study-wal").exists()
