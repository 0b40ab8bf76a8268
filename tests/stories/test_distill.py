"""A teacher's answers become a student's training data: what is written, what is refused, that it can be learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import seqloom as package
from commands import Command
from seqloom.api import distill as module
from seqloom.api.datasets import Datasets
from seqloom.api.journal import Journal
from seqloom.api.load import load
from seqloom.recipe import load_recipe

pytest_plugins = ["command_fixtures"]


def sources(run: Path) -> list[str]:
    """The sources that a run was trained on, in order."""
    return [example.source for example in Datasets(load(run).recipe.data).train()]


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_targets_are_the_teachers_and_the_rest_is_as_it_was(seqloom: Command, run: Path, tmp_path: Path) -> None:
    output, student = tmp_path / "distilled.tsv", tmp_path / "student.yaml"
    answer = seqloom("distill", run, "--output", output, "--beam", 2, "--recipe", student, "--device", "cpu")
    assert (answer.code, answer.out) == (0, ""), answer.err
    model = load(run)
    expected = [[p.source, p.text] for p in model(sources(run), beam=2) if p.text.strip()]
    assert rows(output) == expected
    assert f"{len(expected):,} pairs with the teacher's target" in answer.err

    held_out = {part: tmp_path / f"distilled.{part}.jsonl" for part in ("dev", "test")}
    for part, examples in (("dev", Datasets(model.recipe.data).dev()), ("test", Datasets(model.recipe.data).test())):
        found = [json.loads(line) for line in held_out[part].read_text().splitlines()]
        assert found == [{"source": one.source, "target": [one.target]} for one in examples]
    recipe = load_recipe(student)
    assert recipe.with_(data=model.recipe.data, runtime=model.recipe.runtime) == model.recipe
    assert recipe.data.files() == {
        "train": [str(output)],
        **{part: [str(path)] for part, path in held_out.items()},
    }
    assert (recipe.runtime.device, recipe.runtime.threads) == ("auto", None)
    assert not list(tmp_path.glob(".distilled*"))  # neither journal nor temporary file is left


def test_a_student_learns_from_the_file_and_agrees_with_its_teacher(
    seqloom: Command, tiny_run: Path, tmp_path: Path
) -> None:
    student = tmp_path / "student.yaml"
    answer = seqloom("distill", tiny_run, "-o", tmp_path / "distilled.jsonl", "--beam", 1, "--recipe", student, "-q")
    assert (answer.code, answer.err) == (0, "")
    smaller = ["--set", "model.encoder.width=24", "--set", "model.decoder.width=24"]
    trained = seqloom("train", student, "--run", tmp_path / "run", "-q", "--threads", 1, *smaller)
    assert trained.code == 0, trained.err
    texts = [example.source for example in Datasets(load(tiny_run).recipe.data).test()][:40]
    taught, learned = (load(folder)(texts) for folder in (tiny_run, tmp_path / "run"))
    assert sum(a.text == b.text for a, b in zip(taught, learned, strict=True)) > 20


def test_without_a_place_for_it_the_recipe_is_data_on_stdout(seqloom: Command, run: Path, tmp_path: Path) -> None:
    given = seqloom("distill", run, "--output", tmp_path / "d.tsv", "--beam", 1, "--keep-gold", 0.5, "--json")
    report = json.loads(given.out)
    assert yaml.safe_load(report["recipe"])["data"]["train"]["path"] == str(tmp_path / "d.tsv")
    plain = seqloom("distill", run, "--output", tmp_path / "d.tsv", "--beam", 1, "--keep-gold", 0.5)
    assert plain.out == report["recipe"]


def test_a_share_keeps_its_gold_target(seqloom: Command, run: Path, tmp_path: Path) -> None:
    """By a hash of the source: the same ones every time, and more of them with a larger share."""
    kept: list[set[str]] = []
    answers = tmp_path / "answers.txt"
    answers.write_text("nothing right\n" * len(sources(run)))
    for share in (0.3, 0.6):
        output = tmp_path / f"{share}.tsv"
        wanted = ("distill", run, "-o", output, "--predictions", answers, "--keep-gold", share, "--json")
        report = json.loads(seqloom(*wanted).out)
        gold = {source for source, target in rows(output) if target == source[::-1]}
        assert report["gold"] == len(gold)
        assert report["gold"] / len(sources(run)) == pytest.approx(share, abs=0.12)
        kept.append(gold)
    assert kept[0] < kept[1]


def test_answers_made_elsewhere_must_pair_up(seqloom: Command, run: Path, tmp_path: Path) -> None:
    count = len(sources(run))
    answers, output = tmp_path / "answers.txt", tmp_path / "d.tsv"
    answers.write_text("".join(f"answer {number}\n" for number in range(count)))
    assert seqloom("distill", run, "-o", output, "--predictions", answers).code == 0
    assert rows(output) == [[source, f"answer {number}"] for number, source in enumerate(sources(run))]
    before = output.read_bytes()
    for found in (count - 1, count + 3):
        answers.write_text("x\n" * found)
        line = seqloom("distill", run, "-o", output, "--predictions", answers).refused("E_ALIGN", 3)
        assert f"{found:,} predictions for {count:,} training sources" in line
        assert str(answers) in line
        assert output.read_bytes() == before  # whole or as it was


def test_sources_without_an_answer_are_left_out_and_counted(seqloom: Command, run: Path, tmp_path: Path) -> None:
    count = len(sources(run))
    answers = tmp_path / "answers.txt"
    answers.write_text("".join("\n" if number % 3 == 0 else "x\n" for number in range(count)))
    answer = seqloom("distill", run, "-o", tmp_path / "d.tsv", "--predictions", answers)
    assert len(rows(tmp_path / "d.tsv")) == count - len(range(0, count, 3))
    assert f"{len(range(0, count, 3)):,} sources have no answer" in answer.err
    answers.write_text("\n" * count)
    seqloom("distill", run, "-o", tmp_path / "e.tsv", "--predictions", answers).refused("E_EMPTY", 3)
    assert not (tmp_path / "e.tsv").exists()


def test_a_job_that_was_cut_off_goes_on(run: Path, tmp_path: Path) -> None:
    """The second sitting asks only what the first has not; the file is that of a job never cut off."""
    total = len(sources(run))

    def cut(answers: object, left: int) -> object:
        for number, answer in enumerate(answers):  # type: ignore[arg-type,var-annotated]
            if number == 40:
                raise KeyboardInterrupt
            yield answer

    whole = module.distill([run], module.Distillation(tmp_path / "whole.tsv", beam=2))
    broken = module.Distillation(tmp_path / "d.tsv", beam=2, watch=cut)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        module.distill([run], broken)
    assert not (tmp_path / "d.tsv").exists()
    told: list[str] = []
    asked: list[int] = []

    def watched(answers: object, left: int) -> object:
        asked.append(left)
        return answers

    again = module.Distillation(tmp_path / "d.tsv", beam=2, tell=told.append, watch=watched)  # type: ignore[arg-type]
    found = module.distill([run], again)
    assert asked == [total - 40]
    assert told == [f"40 of {total:,} sources were answered before; going on"]
    assert (tmp_path / "d.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert (found.taught, found.left_out) == (whole.taught, whole.left_out)


def test_a_journal_of_another_job_or_with_a_torn_line_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "one") as journal:
        for answer in ("a", None, "c\nd"):
            journal.add(answer)
    with path.open("ab") as file:
        file.write(b'"torn')
    again = Journal(path, "one")
    assert again.done == 3
    with again:
        again.add("e")
    assert list(again.answers()) == ["a", None, "c\nd", "e"]
    assert Journal(path, "two").done == 0
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(package.SeqloomError, match="not an answer"):
        list(Journal(path, "one").answers())


def test_an_ensemble_teaches_as_one(seqloom: Command, run: Path, tmp_path: Path) -> None:
    output = tmp_path / "d.tsv"
    assert seqloom("distill", run, run, "--ensemble", "-o", output, "--beam", 1, "-q").code == 0
    alone = tmp_path / "alone.tsv"
    assert seqloom("distill", run, "-o", alone, "--beam", 1, "-q").code == 0
    assert output.read_bytes() == alone.read_bytes()  # the mean of a model and itself is that model


def test_what_cannot_be_done_is_said(seqloom: Command, run: Path, tmp_path: Path) -> None:
    output = tmp_path / "d.tsv"
    seqloom("distill", run, run, "-o", output).refused("E_USAGE", 2)
    seqloom("distill", run, "--ensemble", "-o", output).refused("E_USAGE", 2)
    seqloom("distill", run, "-o", tmp_path / "d.txt").refused("E_USAGE", 2)
    seqloom("distill", run, "-o", output, "--keep-gold", 1.5).refused("E_USAGE", 2)
    seqloom("distill", run, "-o", output, "--beam", 0).refused("E_USAGE", 2)
    seqloom("distill", tmp_path / "nothing", "-o", output).refused("E_FILE", 6)
    data = load(run).recipe.data.files()["train"][0]
    assert "own data" in seqloom("distill", run, "-o", data).refused("E_USAGE", 2)
    assert not output.exists()


@pytest.mark.parametrize("tabs", [False, True])
def test_extras_and_weights_travel_along_and_a_tsv_holds_no_tabs(tabs: bool, seqloom: Command, tmp_path: Path) -> None:
    gap = "\t" if tabs else " "
    records = [{"s": f"a{i}{gap}b", "t": f"b a{i}", "tags": ["N", "PL"], "w": i % 3} for i in range(120)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    train = {
        "path": str(tmp_path / "pairs.jsonl"),
        "source": "s",
        "target": "t",
        "weight": "w",
        "extras": {"tags": "tags"},
    }
    recipe = {
        "data": {"train": train},
        "extras": {"tags": {}},
        "model": {"encoder": {"width": 8}, "decoder": {"width": 8}},
        "training": {"steps": 3},
        "evaluation": {"validate_examples": 0},
        "runtime": {"threads": 1},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    assert seqloom("train", tmp_path / "r.yaml", "--run", tmp_path / "run", "-q").code == 0
    answers = tmp_path / "answers.txt"
    answers.write_text("x\n" * len(sources(tmp_path / "run")))
    for form in ("jsonl", "tsv"):
        output, student = tmp_path / f"d.{form}", tmp_path / f"{form}.yaml"
        options = ("-o", output, "--predictions", answers, "--recipe", student)
        answer = seqloom("distill", tmp_path / "run", *options)
        if form == "tsv" and tabs:
            assert f"--output {tmp_path}/d.jsonl" in answer.refused("E_DATA", 3)
            continue
        assert answer.code == 0, answer.err
        data = load_recipe(student).data
        for example in Datasets(data).train():
            assert (example.target, example.extras) == ("x", {"tags": "N;PL"})
            assert example.weight == int(example.source[1:].split()[0]) % 3
        assert next(Datasets(data).dev()).extras == {"tags": "N;PL"}


def test_a_recipe_of_the_students_own_brings_its_model_and_data(seqloom: Command, run: Path, tmp_path: Path) -> None:
    raw = yaml.safe_load((run / "recipe.yaml").read_text())
    raw["model"]["encoder"]["width"] = 8
    pairs = raw["data"]["train"]["path"]
    raw["data"] = {"train": pairs, "dev": pairs, "test": pairs}
    own, student = tmp_path / "own.yaml", tmp_path / "student.yaml"
    own.write_text(yaml.safe_dump(raw))
    answer = seqloom(
        "distill", run, "-o", tmp_path / "d.tsv", "--beam", 1, "--data", own, "--recipe", student, "--json"
    )
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    recipe = load_recipe(student)
    assert recipe.model.model_dump()["encoder"]["width"] == 8
    assert report["held_out"] == {}  # files were given
    assert report["taught"] + report["left_out"] == len(Path(pairs).read_text().splitlines())
    assert recipe.data.files()["dev"] == [pairs]
