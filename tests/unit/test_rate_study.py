"""Studies: what can be answered, what is planted, what a rater sees, and that clicks are kept."""

from __future__ import annotations

import stat
from pathlib import Path
from random import Random

import pytest

from rating import BAD, GOOD, REFERENCES, SOURCES, material, study
from seqloom.errors import SeqloomError
from seqloom.rate.blind import APART, View
from seqloom.rate.material import Sources, gathered, named_systems
from seqloom.rate.plan import Plan, checks_for, damaged, tasks_of
from seqloom.rate.questions import QUESTIONS, Shown, chosen
from seqloom.rate.store import Store

SHOWN = Shown("a dog barks", 3)
MINOR = {"start": 2, "end": 5, "severity": "minor"}
MISSING = {"start": 11, "end": 11, "severity": "major"}


def plan_of(tmp_path: Path, **wishes: object) -> Plan:
    with Store(study(tmp_path / "study", **wishes)) as store:  # type: ignore[arg-type]
        return store.plan


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "number", "worth"),
    [
        ("adequate", True, 100, 1),
        ("fluent", False, 0, 0),
        ("adequacy", 1, 1, 0),
        ("fluency", 4, 4, 0.75),
        ("direct", 30, 30, 0.3),
        ("rank", 1, 1, 1),
        ("rank", 3, 3, 0),
        ("errors", [], 0, 1),
        ("errors", [MINOR, MISSING], -6, 0.4),
    ],
)
def test_an_answer_has_a_number_and_a_worth(name: str, value: object, number: float, worth: float) -> None:
    form = QUESTIONS[name].form
    answer = form.checked(value, SHOWN)
    assert form.number(answer) == number
    assert form.worth(answer, SHOWN.outputs) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adequate", 1),
        ("adequate", "yes"),
        ("adequacy", 0),
        ("adequacy", 6),
        ("adequacy", 2.5),
        ("adequacy", True),
        ("direct", 101),
        ("direct", -1),
        ("direct", float("nan")),
        ("rank", 4),
        ("errors", "none"),
        ("errors", [3]),
        ("errors", [{**MINOR, "end": 12}]),
        ("errors", [{**MINOR, "start": -1}]),
        ("errors", [{**MINOR, "start": 5}]),
        ("errors", [{**MINOR, "start": True}]),
        ("errors", [{**MINOR, "severity": "bad"}]),
        ("errors", [{**MINOR, "severity": []}]),
        ("errors", [{**MINOR, "more": 1}]),
        ("errors", [MINOR, {**MINOR, "start": 4, "end": 7}]),
        ("errors", [MISSING, {**MISSING, "severity": "minor"}]),
        ("errors", [MINOR] * 201),
    ],
)
def test_what_is_no_answer_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"expected|overlap"):
        QUESTIONS[name].form.checked(value, SHOWN)


def test_questions_are_chosen_by_name() -> None:
    assert [one.name for one in chosen(None, 2)] == ["adequate", "fluent", "rank"]
    assert [one.name for one in chosen(None, 1)] == ["adequate", "fluent"]
    assert [one.name for one in chosen("direct, errors,direct", 1)] == ["errors", "direct"]
    with pytest.raises(SeqloomError, match='did you mean "fluent"'):
        chosen("fluemt", 2)
    with pytest.raises(SeqloomError, match="one system alone has no rank"):
        chosen("rank", 1)


# --- what is planted -------------------------------------------------------------------------------------------------


def test_equal_outputs_are_shown_once_and_count_for_both() -> None:
    some = material(SOURCES[:2], REFERENCES[:2], a=["x y", "p"], b=["x y", "q"])
    tasks = tasks_of(some.items, some.outputs, 0, 1)
    assert [[(one.text, one.systems) for one in task.candidates] for task in tasks] == [
        [("x y", (0, 1))],
        [("p", (0,)), ("q", (1,))],
    ]


def test_three_kinds_of_checks_are_planted_in_turn(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, checks=6)
    planted = [(task.item, one) for task in plan.tasks for one in task.candidates if not one.systems]
    assert sorted(one.role for _, one in planted) == ["damaged", "damaged", "reference", "reference"]
    again = [task for task in plan.tasks if task.repeats is not None]
    assert len(again) == 2
    for task in again:
        assert task.candidates == plan.tasks[task.repeats or 0].candidates
    touched = [item for item, _ in planted] + [task.item for task in again]
    assert len(set(touched)) == 6, "each check has an item of its own"
    for item, one in planted:
        if one.role == "damaged":
            original = plan.tasks[item].candidates[one.original or 0].text
            assert one.text != original
            assert set(one.text.split()) < set(original.split())


def test_without_references_none_is_planted() -> None:
    some = material(references=())
    tasks = tasks_of(some.items, some.outputs, 4, 1)
    assert {one.role for task in tasks for one in task.candidates} == {"output", "damaged"}
    assert sum(task.repeats is not None for task in tasks) == 2


@pytest.mark.parametrize("text", ["a good long sentence of words", "two words", "kɒfi", "W IY V ER"])
def test_damage_is_seen(text: str) -> None:
    for seed in range(20):
        spoilt = damaged(text, Random(seed))
        assert spoilt is not None
        assert spoilt not in text


@pytest.mark.parametrize("text", ["", " ", "a", "aaa"])
def test_what_cannot_be_damaged_is_left_alone(text: str) -> None:
    assert damaged(text, Random(1)) is None


def test_how_many_checks() -> None:
    assert [checks_for(None, items) for items in (1, 2, 10, 100)] == [1, 2, 3, 20]
    assert checks_for(0, 10) == 0
    with pytest.raises(SeqloomError, match="11 checks, but only 10 items"):
        checks_for(11, 10)


# --- what a rater sees -----------------------------------------------------------------------------------------------


def test_every_rater_has_an_order_of_their_own_that_stays(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, checks=6)
    anna, ben = View(plan, "anna"), View(plan, "ben")
    orders = [[view.task(number) for number in range(1, len(view) + 1)] for view in (anna, View(plan, "anna"), ben)]
    assert orders[0] == orders[1] != orders[2]
    assert len({found[0] for found in orders[0] if found}) == len(plan.tasks)
    letters = [[view.letters(task) for task in range(len(plan.tasks))] for view in (anna, View(plan, "anna"), ben)]
    assert letters[0] == letters[1] != letters[2]
    assert {tuple(one.values()) for one in letters[0] if len(one) == 2} == {(0, 1), (1, 0)}


def test_an_item_comes_again_much_later(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, checks=6)
    for rater in ("anna", "ben", "carl"):
        view = View(plan, rater)
        for place, task in enumerate(plan.tasks):
            if task.repeats is not None:
                gap = view.number(place) - view.number(task.repeats)
                assert gap > APART or (gap > 0 and view.number(place) > len(view) - 2)


def test_no_task_beyond_the_ends(tmp_path: Path) -> None:
    view = View(plan_of(tmp_path), "anna")
    assert view.task(0) is view.task(len(view) + 1) is view.task(-1) is None


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_newest_click_counts_and_undo_brings_back_what_was(tmp_path: Path) -> None:
    path = study(tmp_path / "study", raters=("anna", "ben"))
    with Store(path) as store:
        for answer in (True, False, False):
            store.save("anna", (0, 1, "adequate"), answer)
        store.save("ben", (0, 1, "adequate"), True)
        assert [click.answer for click in store.clicks("anna")] == [True, False], "said twice is kept once"
        undone = store.undo("anna")
        assert undone is not None
        assert (undone.task, undone.answer) == (0, False)
    with Store(path) as store:
        assert store.answers("anna")[0, 1, "adequate"].answer is True
        store.save("anna", (0, 1, "adequate"), None)
        assert store.answers("anna") == {}
        store.undo("anna")
        store.undo("anna")
        assert store.undo("anna") is None
        assert len(store.clicks("ben")) == 1


def test_a_study_is_its_owners_and_its_links_stay(tmp_path: Path) -> None:
    path = study(tmp_path / "study", raters=("anna", "ben"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Store(path) as store:
        tokens = [store.token(name) for name in ("anna", "ben")]
        assert [store.rater_of(token) for token in (*tokens, "", tokens[0] + "x", "\ud800")] == [
            "anna",
            "ben",
            *[None] * 3,
        ]
    with Store(path) as again:
        assert again.token("anna") == tokens[0]
    with Store(study(tmp_path / "other")) as other:
        assert other.token("anna") != tokens[0]


def test_a_study_is_never_overwritten(tmp_path: Path) -> None:
    path = study(tmp_path / "study")
    before = path.read_bytes()
    with pytest.raises(SeqloomError, match="never overwritten"):
        study(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["study"]


# --- what it is made of ----------------------------------------------------------------------------------------------


def test_systems_have_names() -> None:
    assert [one.name for one in named_systems(["runs/a", "ours=x/b.txt"])] == ["a", "ours"]
    assert [one.name for one in named_systems(["x/out.txt", "y/out.txt"])] == ["x/out.txt", "y/out.txt"]
    for given, words in (([], "no outputs"), (["a=x", "a=y"], "two systems"), (["=x"], "no name"), (["x"] * 21, "21")):
        with pytest.raises(SeqloomError, match=words):
            named_systems(given)


def test_files_are_gathered_with_and_without_references(tmp_path: Path) -> None:
    for name, lines in (("s", SOURCES), ("r", REFERENCES), ("good", GOOD), ("bad", BAD)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    systems = named_systems([str(tmp_path / "good"), str(tmp_path / "bad")])
    bare = gathered(systems, Sources(source=str(tmp_path / "s")))
    assert [item.references for item in bare.items] == [()] * 12
    full = gathered(systems, Sources(source=str(tmp_path / "s"), references=(str(tmp_path / "r"),)))
    assert (full.systems, full.outputs) == (("good", "bad"), (tuple(GOOD), tuple(BAD)))
    assert full.items[3].references == (REFERENCES[3],)
    some = full.sampled(5, 1)
    assert len(some.items) == 5
    assert some == full.sampled(5, 1) != full.sampled(5, 2)
    for item, output in zip(some.items, some.outputs[0], strict=True):
        assert GOOD[SOURCES.index(item.source)] == output
