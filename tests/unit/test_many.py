"""Seeds and sweeps: which runs are made, what they share, and what is said of them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from seqloom.api.load import load, load_ensemble
from seqloom.api.many import Many, is_sweep, parse_seeds, plan, train_many
from seqloom.api.testset import split_outside_brackets
from seqloom.api.train import Wishes
from seqloom.errors import SeqloomError

SHORT = ["training.epochs=1"]


def refused(code: str, call: object, *arguments: object) -> SeqloomError:
    with pytest.raises(SeqloomError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.code == code
    return caught.value


# --- seeds and values --------------------------------------------------------------------------------------------


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("1-3,7") == [1, 2, 3, 7]
    assert parse_seeds(" 5 ") == [5]
    assert parse_seeds("0-0, 2 - 3") == [0, 2, 3]


@pytest.mark.parametrize("text", ["", "3-1", "a", "1,,2", "-1", "1-", "1-2-3", "1.5", "1,1", "1-3,2", "0-1000000"])
def test_seeds_that_mean_nothing_are_refused(text: str) -> None:
    refused("E_USAGE", parse_seeds, text)


@given(st.lists(st.sampled_from(["1", "1e-3", "[1,2]", "{a: 1, b: [2,3]}", '"x,y"', "'p,q'", "word"]), min_size=1))
def test_commas_split_only_outside_brackets_and_quotes(values: list[str]) -> None:
    assert split_outside_brackets(",".join(values)) == values
    assert is_sweep("key=" + ",".join(values)) == (len(values) > 1)


def test_sweeps_and_seeds_multiply() -> None:
    settings = ["training.optimiser.lr=1e-3,2e-3", "training.epochs=2", "model.encoder.width=8,16"]
    members = plan(Path("runs/x"), settings, [1, 2])
    assert len(members) == 2 * 2 * 2
    first = members[0]
    assert first.label == "lr=1e-3,width=8/seed-1"
    assert first.folder == Path("runs/x/lr=1e-3,width=8/seed-1")
    assert first.assignments == (
        "training.epochs=2",
        "training.optimiser.lr=1e-3",
        "model.encoder.width=8",
        "runtime.seed=1",
    )
    assert [member.label for member in plan(Path("r"), [], [4, 5])] == ["seed-4", "seed-5"]
    assert [member.folder for member in plan(Path("r"), ["a.b=1,2"], [])] == [Path("r/b=1"), Path("r/b=2")]


def test_keys_with_the_same_last_word_are_told_apart() -> None:
    members = plan(Path("r"), ["model.encoder.width=8,16", "model.decoder.width=8,16"], [])
    assert members[1].label == "model.encoder.width=8,model.decoder.width=16"


def test_a_list_is_one_value_and_a_list_of_lists_a_sweep() -> None:
    assert [member.label for member in plan(Path("r"), ["data.columns=[0,1]"], [7])] == ["seed-7"]
    labels = [member.label for member in plan(Path("r"), ["data.columns=[0,1],[1,0]"], [])]
    assert labels == ["columns=0_1", "columns=1_0"]


@pytest.mark.parametrize("settings", [["a=1,,2"], ["a=1,1"], ["a=b/c,b_c"], ["runtime.seed=1,2"]])
def test_plans_that_cannot_be_met_are_refused(settings: list[str]) -> None:
    refused("E_USAGE", plan, Path("r"), settings, [1])


def test_no_folder_name_leaves_the_run() -> None:
    for member in plan(Path("runs/x"), ["data.train=../../a.tsv,/etc/b.tsv"], []):
        assert member.folder.parent == Path("runs/x")
        assert not member.folder.name.startswith(".")


# --- training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_recipe(tmp_path_factory.mktemp("many"), pairs=300)


@pytest.fixture(scope="module")
def family(recipe: Path) -> Many:
    """Two seeds, with test values."""
    return train_many(recipe, recipe.parent / "family", SHORT, [1, 2], lambda label: Wishes(), test=True)


def test_seeds_give_runs_a_mean_and_a_deviation(family: Many) -> None:
    assert [outcome.label for outcome in family.outcomes] == ["seed-1", "seed-2"]
    one, two = (outcome.values["nll"] for outcome in family.outcomes)
    assert one != two, "another seed is another run"
    (only,) = family.families
    assert only.values["nll"].mean == pytest.approx((one + two) / 2)
    assert only.values["nll"].deviation == pytest.approx(abs(one - two) / 2**0.5)  # n - 1 = 1
    assert set(only.test) == {"exact", "bleu"}
    assert family.best == ("seed-1" if one < two else "seed-2")
    assert family.best_family is None
    assert family.reason == "finished"


def test_members_share_split_and_vocabulary_and_answer_as_one(family: Many) -> None:
    models = [load(outcome.folder) for outcome in family.outcomes]
    assert models[0].recipe.data == models[1].recipe.data
    assert models[0].target.vocabulary == models[1].target.vocabulary
    ensemble = load_ensemble([outcome.folder for outcome in family.outcomes])
    pair = [("ant bee", "bee ant")]
    first = [model.score(pair)[0].token_scores[0] for model in models]
    mean = math.log(sum(math.exp(log_prob) for log_prob in first) / 2)  # probabilities are averaged, not their logs
    assert ensemble.score(pair)[0].token_scores[0] == pytest.approx(mean, abs=1e-5)
    written = json.loads((family.folder / "ensemble.json").read_text())
    assert written["members"] == ["seed-1", "seed-2"]
    assert written["command"].startswith("seqloom predict ")
    assert written["command"].endswith(" --ensemble")
    assert json.loads((family.folder / "summary.json").read_text())["best"] == family.best


def test_the_vocabulary_is_learned_once(recipe: Path, family: Many, tmp_path: Path) -> None:
    """A member finds the codec of its family's first, even one that its own seed would not have learned."""
    folder = tmp_path / "family"
    shutil.copytree(family.folder / "seed-1", folder / "seed-1")
    marked = folder / "seed-1" / "codec" / "target" / "vocabulary.txt"
    marked.write_text(marked.read_text() + "yak\t1\n")
    train_many(recipe, folder, SHORT, [1, 2], lambda label: Wishes())
    assert "yak" in (folder / "seed-2" / "bundle" / "target" / "vocabulary.txt").read_text()


def test_finished_members_are_passed_over(recipe: Path, family: Many) -> None:
    said: list[str] = []
    before = {path: path.stat().st_mtime_ns for path in family.folder.glob("seed-*/metrics.jsonl")}
    again = train_many(recipe, family.folder, SHORT, [1, 2], lambda label: Wishes(tell=said.append))
    assert [outcome.values for outcome in again.outcomes] == [outcome.values for outcome in family.outcomes]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sum("is finished" in line for line in said) == 2


def test_an_interruption_keeps_what_is_done(recipe: Path, tmp_path: Path) -> None:
    stops = {"seed-1": lambda: None, "seed-2": lambda: "interrupted"}
    many = train_many(recipe, tmp_path / "r", SHORT, [1, 2], lambda label: Wishes(stop=stops[label]))
    assert many.reason == "interrupted"
    assert [outcome.label for outcome in many.outcomes] == ["seed-1"]
    assert not (tmp_path / "r" / "ensemble.json").exists()
    whole = train_many(recipe, tmp_path / "r", SHORT, [1, 2], lambda label: Wishes())
    assert whole.reason == "finished"
    assert len(whole.outcomes) == 2


def test_a_sweep_names_the_best_value(recipe: Path, tmp_path: Path) -> None:
    settings = [*SHORT, "training.optimiser.lr=1e-2,1e-7"]
    many = train_many(recipe, tmp_path / "r", settings, [], lambda label: Wishes())
    assert many.best == many.best_family == "lr=1e-2"
    assert all(family.ensemble is None for family in many.families)
    assert (tmp_path / "r" / "lr=1e-7" / "bundle" / "card.json").exists()


def test_a_run_that_diverges_does_not_stop_a_sweep(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqloom.api import many as module

    real = module.train

    def diverging(path: Path, folder: Path, settings: list[str], wishes: Wishes) -> object:
        if "lr=9" in folder.name:
            raise SeqloomError("E_DIVERGED", "the loss is not finite")
        return real(path, folder, settings, wishes)

    monkeypatch.setattr(module, "train", diverging)
    settings = [*SHORT, "training.optimiser.lr=9,1e-2"]
    many = train_many(recipe, tmp_path / "r", settings, [], lambda label: Wishes())
    assert (many.outcomes[0].label, many.outcomes[0].reason) == ("lr=9", "diverged")
    assert many.best == "lr=1e-2"
    refused("E_DIVERGED", train_many, recipe, tmp_path / "s", ["training.optimiser.lr=9,99"], [], lambda _: Wishes())


def test_what_cannot_work_is_said_before_any_run(recipe: Path, family: Many, tmp_path: Path) -> None:
    def wishes(label: str) -> Wishes:
        raise AssertionError("nothing may be trained")

    refused("E_RECIPE", train_many, recipe, tmp_path / "r", ["training.optimiser.lr=1e-3,-1"], [], wishes)
    refused("E_RUN", train_many, recipe, family.folder / "seed-1", [], [1, 2], wishes)
    error = refused("E_USAGE", train_many, recipe, tmp_path / "r", ['data.train="-"'], [1, 2], wishes)
    assert "pipe" in error.what
    assert not (tmp_path / "r").exists()
