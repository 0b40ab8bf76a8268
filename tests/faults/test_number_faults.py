"""What can be wrong with numbers and with sets of labels: refused with the place and the fix, or counted and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Answer, Command

pytest_plugins = ["command_fixtures"]

NUMBERS = """
data: {{train: {folder}/train.tsv, dev: {folder}/dev.tsv, test: {folder}/test.tsv}}
source: {{tokenizer: words}}
target: {{tokenizer: number}}
model: {{source_embedding: {{width: 4}}, encoder: {{kind: bag, width: 4}}, decoder: {{kind: number, pooling: mean}}}}
batching: {{tokens: 64}}
training: {{steps: 4, optimiser: {{kind: adam, lr: 1e-2}}, metric: pearson}}
evaluation: {{metrics: [mse, pearson], right_at: 0.25, show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
SETS = (
    NUMBERS.replace("tokenizer: number", "tokenizer: set")
    .replace("kind: number", "kind: labels")
    .replace("metric: pearson", "metric: set_accuracy")
    .replace("metrics: [mse, pearson], right_at: 0.25", "metrics: [set_accuracy, multilabel_f1]")
)
RATED = "a b\t1\nb c\t2.5\nc a\t4\nd\t3\n"
LABELLED = "a b\tx;y\nb c\ty\nc a\t\nd\tx\n"


@pytest.fixture
def trained(tmp_path: Path, seqloom: Command):
    """Train on these files and see how it ends; a set that is not given holds the usual lines."""

    def give(recipe: str, lines: str, **sets: str) -> Answer:
        for part in ("train", "dev", "test"):
            (tmp_path / f"{part}.tsv").write_text(sets.get(part, lines))
        (tmp_path / "recipe.yaml").write_text(recipe.format(folder=tmp_path))
        return seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "--no-report")

    return give


@pytest.mark.parametrize("odd", ["nan", "inf", "-Infinity", "four", "1e300", "3,5", "3 4"])
@pytest.mark.parametrize("part", ["train", "dev"])
def test_what_is_no_number_is_named_with_its_line(odd: str, part: str, trained, tmp_path: Path) -> None:
    line = trained(NUMBERS, RATED, **{part: f"{RATED}e\t{odd}\n"}).refused("E_DATA", 3)
    assert f"the target '{odd}' is no finite number" in line
    assert f"{tmp_path}/{part}.tsv:5" in line
    assert "write numbers like 3 or -0.25" in line


def test_a_header_is_recognised_for_what_it_is(trained, tmp_path: Path) -> None:
    line = trained(NUMBERS, RATED, train=f"text\tscore\n{RATED}").refused("E_DATA", 3)
    assert f"{tmp_path}/train.tsv:1" in line
    assert "header: true" in line


def test_numbers_that_are_all_the_same(trained, tmp_path: Path) -> None:
    line = trained(NUMBERS, RATED, train="a\t3\nb\t3.0\n").refused("E_DATA", 3)
    assert "all numbers are 3" in line
    assert f"{tmp_path}/train.tsv" in line


def test_a_missing_number_is_skipped_in_training_and_counted(trained) -> None:
    answer = trained(NUMBERS, RATED, train=f"{RATED}e\t\n", dev=f"{RATED}f\t \n")
    assert answer.code == 0
    assert "train: 4 pairs (skipped: 1 empty_target)" in answer.err


@pytest.mark.parametrize("odd", ["nan", "", "much"])
def test_what_is_no_number_cannot_be_judged_by(odd: str, trained, tmp_path: Path, seqloom: Command) -> None:
    assert trained(NUMBERS, RATED).code == 0
    (tmp_path / "odd.tsv").write_text(f"a\t1\nb\t{odd}\n")
    line = seqloom("evaluate", tmp_path / "run", "--data", tmp_path / "odd.tsv").refused("E_DATA", 3)
    assert f"'{odd}' is no finite number" in line
    assert f"{tmp_path}/odd.tsv:2" in line


def test_what_is_no_number_is_not_explained(trained, tmp_path: Path, seqloom: Command) -> None:
    assert trained(NUMBERS, RATED).code == 0
    for odd in ("nan", "much"):
        line = seqloom("explain", tmp_path / "run", "a b", "--target", odd).refused("E_USAGE", 2)
        assert f"--target '{odd}': the model cannot say this" in line


def test_outputs_of_another_tool_that_are_no_numbers(tmp_path: Path, seqloom: Command) -> None:
    (tmp_path / "outputs.txt").write_text("1\nabout 2\n")
    (tmp_path / "gold.txt").write_text("1\n2\n")
    line = seqloom(
        "evaluate", "--outputs", tmp_path / "outputs.txt", "--reference", tmp_path / "gold.txt", "--metric", "mse"
    ).refused("E_DATA", 3)
    assert "the output 'about 2' is no finite number" in line


def test_numbers_outside_of_the_range_of_training(trained, tmp_path: Path, seqloom: Command) -> None:
    """They are learned and judged as they are; what is said stays within the range."""
    assert trained(NUMBERS, RATED, dev="a\t-100\nb\t100\n").code == 0
    said = [float(text) for text in seqloom("predict", tmp_path / "run", "--text", "a b", "--text", "q").out.split()]
    assert all(1 <= number <= 4 for number in said)
    report = seqloom("check", tmp_path / "recipe.yaml").out
    assert "unseen_number" in report


def test_check_names_what_is_no_number_and_what_is_far_off(tmp_path: Path, seqloom: Command) -> None:
    lines = [f"w{i}\t{i % 7}.5\n" for i in range(300)]
    (tmp_path / "far.tsv").write_text("text\tscore\n" + "".join(lines) + "q\t1000000.5\nr\tnan\n")
    report = seqloom("check", tmp_path / "far.tsv", "--task", "number").out
    assert f"{tmp_path}/far.tsv:1 (score), {tmp_path}/far.tsv:303 (nan)" in report
    assert "far_number" in report
    assert f"{tmp_path}/far.tsv:302 (1e+06)" in report


# --- recipes --------------------


@pytest.mark.parametrize(
    ("recipe", "old", "new", "told"),
    [
        (NUMBERS, "target: {{tokenizer: number}}", "target: {{tokenizer: words}}", "set target.tokenizer: number"),
        (NUMBERS, "kind: number", "kind: label", "set model.decoder: number"),
        (SETS, "target: {{tokenizer: set}}", "target: {{tokenizer: whole}}", "set target.tokenizer: set"),
        (SETS, "tokenizer: set", 'tokenizer: {{kind: set, separator: "|"}}', "give both the same separator"),
        (SETS, "data: {{", "data: {{judgments: mean, ", "only numbers have a mean"),
        (NUMBERS, "tokenizer: number", "tokenizer: {{kind: number, low: 3, high: 1}}", "low 3 is not below high 1"),
        (NUMBERS, "tokenizer: number", "tokenizer: {{kind: number, levels: 1}}", "expected at least 2 (got 1)"),
    ],
)
def test_a_recipe_that_does_not_fit_together(recipe: str, old: str, new: str, told: str, trained) -> None:
    assert old in recipe
    assert told in trained(recipe.replace(old, new), RATED).refused("E_RECIPE", 2)


# --- sets --------------------


def test_a_source_without_any_label_is_learned_said_and_judged(trained, tmp_path: Path, seqloom: Command) -> None:
    answer = trained(SETS.replace("steps: 4", "steps: 60"), LABELLED)
    assert answer.code == 0
    assert "train: 4 pairs\n" in answer.err
    (tmp_path / "asked.txt").write_text("c a\n\na b\n")
    assert seqloom("predict", tmp_path / "run", tmp_path / "asked.txt").out == "\n\nx;y\n"
    judged = seqloom("evaluate", tmp_path / "run", "--json")
    assert "caution" not in judged.err, "no label is an answer as well"
    report = json.loads(judged.out)
    assert report["scores"][0]["value"] == 100
    assert [row["label"] for row in report["by_label"]] == ["x", "y"]
    told = json.loads(seqloom("predict", tmp_path / "run", "--text", "c a", "--json").out)
    assert (told["text"], told["skipped"], told["hypotheses"][0]["tokens"]) == ("", False, [])


def test_a_label_that_training_has_not_is_counted(trained, tmp_path: Path, seqloom: Command) -> None:
    answer = trained(SETS, LABELLED, dev=f"{LABELLED}e\tx;z\n")
    assert "1 unseen_label" in answer.err
    (tmp_path / "new.tsv").write_text("a\tz;x\n")
    report = json.loads(seqloom("evaluate", tmp_path / "run", "--data", tmp_path / "new.tsv", "--json").out)
    assert report["unseen_labels"] == {"z": 1}


def test_one_label_only(trained) -> None:
    assert "all examples have the label 'x'" in trained(SETS, LABELLED, train="a\tx\nb\tx\n").refused("E_DATA", 3)


def test_one_label_or_none_is_a_choice(trained, tmp_path: Path, seqloom: Command) -> None:
    answer = trained(SETS, "a\tx\nb\t\n", train="a\tx\nb\t\na a\tx\nb b\t\n")
    assert answer.code == 0, answer.err
    assert seqloom("predict", tmp_path / "run", "--text", "a").code == 0


def test_a_json_list_is_a_set_where_that_is_said(trained, tmp_path: Path, seqloom: Command) -> None:
    recipe = SETS.replace("{folder}/train.tsv", "{{path: {folder}/train.jsonl, list_of: labels}}")
    lines = [{"source": "a b", "target": ["y", "x"]}, {"source": "c", "target": []}, {"source": "d", "target": "x"}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = trained(recipe, LABELLED)
    assert answer.code == 0
    assert "train: 3 pairs\n" in answer.err
    (tmp_path / "train.jsonl").write_text('{"source": "a", "target": ["x;y"]}\n')
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "other").refused("E_DATA", 3)
    assert "an item with ';' in it" in line
