"""Results of studies, against numbers that can be worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rating import BAD, GOOD, REFERENCES, SOURCES, material, study
from seqloom.errors import SeqloomError
from seqloom.rate.counted import won
from seqloom.rate.plan import Candidate, Task
from seqloom.rate.questions import Answer
from seqloom.rate.report import StudyResult, as_csv, study_result
from seqloom.rate.store import Store

Says = Callable[[Task, Candidate], Answer | None]  # of a candidate


def rate(store: Store, rater: str, question: str, says: Says) -> None:
    """Answer one question about everything."""
    for place, task in enumerate(store.plan.tasks):
        for number, candidate in enumerate(task.candidates):
            answer = says(task, candidate)
            if answer is not None:
                store.save(rater, (place, number, question), answer)


def result(tmp_path: Path, question: str, raters: dict[str, Says], **more: object) -> StudyResult:
    checks = more.pop("checks", 0)
    path = study(tmp_path / "study", questions=question, raters=tuple(raters), checks=checks, **more)  # type: ignore[arg-type]
    with Store(path) as store:
        for rater, says in raters.items():
            rate(store, rater, question, says)
        return study_result(store)


def of(task: Task, candidate: Candidate, *answers: Answer) -> Answer:
    """What is said of the good system's output, and of the other's."""
    return answers[candidate.systems[0]]


def test_means_and_z_scores(tmp_path: Path) -> None:
    """Anna is mild (5 and 3), Ben severe (3 and 1): both see one step up and one down around their own mean."""
    found = result(
        tmp_path,
        "adequacy",
        {"anna": lambda task, one: of(task, one, 5, 3), "ben": lambda task, one: of(task, one, 3, 1)},
    )["adequacy"]
    means = {one.system: (one.mean, one.z) for one in found.systems}
    assert [means[name][0].value for name in ("good", "bad")] == [4.0, 2.0]  # type: ignore[union-attr]
    assert [means[name][1].value for name in ("good", "bad")] == pytest.approx([1.0, -1.0])  # type: ignore[union-attr]
    assert means["good"][0].low == means["good"][0].high == 4.0  # type: ignore[union-attr]
    (pair,) = found.pairs
    assert (pair.wins, pair.ties, pair.losses, pair.difference) == (12, 0, 0, 2.0)
    assert pair.sign_p == pytest.approx(2 / 2**12)
    assert pair.better == "good"


@pytest.mark.parametrize(("items", "few"), [(1, True), (2, True), (3, False)])
def test_of_one_or_two_items_no_interval_is_told(tmp_path: Path, items: int, few: bool) -> None:
    says = {"anna": lambda task, one: of(task, one, 5, 3)}
    told = result(tmp_path, "adequacy", says, items=items)["adequacy"]
    (pair,) = told.pairs
    assert [one.mean.value for one in told.systems if one.mean] == [5.0, 3.0]
    for one in (told.systems[0].mean, told.systems[0].z, pair):
        assert one is not None
        assert ((one.low, one.high) == (None, None)) == few
    assert pair.difference == 2.0


def test_shared_outputs_are_ties(tmp_path: Path) -> None:
    """On half of the items both said the same."""
    bad = [*GOOD[:6], *BAD[6:]]
    found = result(
        tmp_path,
        "adequate",
        {"anna": lambda task, one: 0 in one.systems},
        given=material(SOURCES, REFERENCES, good=GOOD, bad=bad),
    )["adequate"]
    assert [one.mean.value for one in found.systems if one.mean] == [100.0, 50.0]
    assert (found.pairs[0].wins, found.pairs[0].ties, found.pairs[0].losses) == (6, 6, 0)


def test_places_become_comparisons_won(tmp_path: Path) -> None:
    assert won({0: 1, 1: 2, 2: 2}) == {0: 100.0, 1: 25.0, 2: 25.0}
    assert won({0: 1}) == {}
    found = result(tmp_path, "rank", {"anna": lambda task, one: of(task, one, 1, 2)})["rank"]
    assert [one.mean.value for one in found.systems if one.mean] == [100.0, 0.0]
    assert found.pairs[0].better == "good"


def test_several_pairs_are_corrected(tmp_path: Path) -> None:
    mixed = [*GOOD[:7], *BAD[7:]]
    given = material(SOURCES, REFERENCES, a=GOOD, b=[f"{text} now" for text in BAD], c=mixed)
    found = result(tmp_path, "direct", {"anna": lambda task, one: 90 if 0 in one.systems else 10}, given=given)
    pairs = {(one.a, one.b): one for one in found["direct"].pairs}
    assert len(pairs) == 3
    # a : b 12 wins, b : c 7 losses, a : c 5 wins; Holm: times 3, 2 and 1
    assert pairs["a", "b"].sign_p_holm == pytest.approx(3 * 2 / 2**12)
    assert pairs["b", "c"].sign_p_holm == pytest.approx(2 * 2 / 2**7)
    assert pairs["a", "c"].sign_p_holm == pytest.approx(2 / 2**5)
    assert [pairs[key].better for key in (("a", "b"), ("b", "c"), ("a", "c"))] == ["a", "c", None]


def test_agreement_of_two_who_agree_and_of_two_who_do_not(tmp_path: Path) -> None:
    def opposite(task: Task, one: Candidate) -> Answer:
        return not of(task, one, True, False)

    def good(task: Task, one: Candidate) -> Answer:
        return of(task, one, True, False)

    (tmp_path / "x").mkdir()
    both = result(tmp_path, "adequate", {"anna": good, "ben": good})
    assert [one.with_others for one in both.raters] == pytest.approx([1, 1])
    agreed = both["adequate"]
    assert (agreed.alpha, agreed.kappas[0].kappa, agreed.units) == (1.0, 1.0, 24)
    apart = result(tmp_path / "x", "adequate", {"anna": good, "ben": opposite})
    assert [one.with_others for one in apart.raters] == pytest.approx([-1, -1])
    fought = apart["adequate"]
    assert fought.alpha is not None
    assert fought.alpha < -0.9
    assert fought.kappas[0].kappa == -1


def test_errors_are_counted_and_quoted(tmp_path: Path) -> None:
    span = {"start": 0, "end": 6, "severity": "major"}
    found = result(tmp_path, "errors", {"anna": lambda task, one: of(task, one, [], [span])})
    assert [one.mean.value for one in found["errors"].systems if one.mean] == [0.0, -5.0]
    assert {(one.systems, one.text, one.severity) for one in found.errors} == {(("bad",), "number", "major")}
    assert len(found.errors) == 12


def test_half_a_study_and_none(tmp_path: Path) -> None:
    found = result(
        tmp_path, "fluent", {"anna": lambda task, one: True if task.item < 3 else None, "ben": lambda *_: None}
    )
    assert [one.ratings for one in found["fluent"].systems] == [3, 3]
    assert [one.done for one in found.raters] == [3, 0]
    assert found["fluent"].alpha is None
    assert found["fluent"].units == 0
    (tmp_path / "x").mkdir()
    empty = result(tmp_path / "x", "fluent", {"anna": lambda *_: None})
    assert all(one.mean is None for one in empty["fluent"].systems)
    assert empty["fluent"].pairs == ()
    json.dumps(empty.as_dict(), allow_nan=False)


# --- careless raters -------------------------------------------------------------------------------------------------


def careful(task: Task, one: Candidate) -> Answer:
    return one.role == "reference" or 0 in one.systems


def says_yes(task: Task, one: Candidate) -> Answer:
    return True


def contrary(task: Task, one: Candidate) -> Answer:
    """Otherwise the second time, and blind to references."""
    return one.role != "reference" and task.repeats is None


def test_the_checks_tell_the_careless_from_the_careful(tmp_path: Path) -> None:
    found = result(tmp_path, "adequate", {"anna": careful, "ben": says_yes, "carl": contrary}, checks=12)
    care = {one.name: one.care for one in found.raters}
    assert care["anna"].failed == 0
    assert not care["anna"].is_careless
    assert care["ben"].by_kind["damaged"] == (4, 4)
    assert care["ben"].by_kind["reference"] == (0, 4)
    assert care["carl"].by_kind["reference"] == (4, 4)
    assert care["carl"].by_kind["repeated"] == (4, 4)
    assert care["carl"].is_careless
    assert care["carl"].p < 0.001


def test_the_careless_may_be_left_out(tmp_path: Path) -> None:
    path = study(tmp_path / "study", questions="adequate", raters=("anna", "carl"), checks=12)
    with Store(path) as store:
        rate(store, "anna", "adequate", careful)
        rate(store, "carl", "adequate", contrary)
        everybody, some = study_result(store), study_result(store, careful=True)
        named = study_result(store, without=["carl"])
        with pytest.raises(SeqloomError, match="no such rater: 'karl' \\(did you mean \"carl\""):
            study_result(store, without=["karl"])
    assert [one.ratings for one in everybody["adequate"].systems] == [24, 24]
    for found in (some, named):
        assert [one.ratings for one in found["adequate"].systems] == [12, 12]
        assert [one.counts for one in found.raters] == [True, False]
        assert [one.mean.value for one in found["adequate"].systems if one.mean] == [100.0, 0.0]


def test_planted_outputs_and_second_showings_do_not_count(tmp_path: Path) -> None:
    found = result(
        tmp_path, "direct", {"anna": lambda task, one: 50 if one.systems and task.repeats is None else 0}, checks=12
    )
    assert all(one.mean is not None and one.mean.value == 50 for one in found["direct"].systems)


# --- beside metrics --------------------------------------------------------------------------------------------------


def test_metrics_beside_people(tmp_path: Path) -> None:
    """People who say what chrF says correlate with it; what is lower for the better is turned round."""
    given = material(SOURCES, REFERENCES, good=GOOD, bad=BAD, right=REFERENCES)
    path = study(tmp_path / "study", given=given, questions="direct", checks=0)
    worth = {"good": 80, "bad": 10, "right": 100}
    with Store(path) as store:
        rate(store, "anna", "direct", lambda task, one: worth[given.systems[one.systems[0]]])
        found = study_result(store, metrics=["chrf", "wer"])
    rows = {one.metric: one for one in found.metrics}
    for metric in ("chrF2", "WER"):
        assert rows[metric].systems.pearson is not None
        assert rows[metric].systems.pearson > 0.9
        assert rows[metric].segments.spearman is not None
        assert rows[metric].segments.spearman > 0.9
        assert rows[metric].segments.count == 36
    assert rows["chrF2"].values["right"] == pytest.approx(100)


def test_two_systems_have_no_correlation_and_no_references_no_metrics(tmp_path: Path) -> None:
    found = result(tmp_path, "direct", {"anna": lambda task, one: of(task, one, 80, 20)})
    assert found.metrics[0].systems.pearson is None
    assert found.metrics[0].segments.pearson is not None
    (tmp_path / "x").mkdir()
    bare = result(
        tmp_path / "x", "direct", {"anna": lambda task, one: of(task, one, 80, 20)}, given=material(references=())
    )
    assert bare.metrics == ()


# --- rows ------------------------------------------------------------------------------------------------------------


def test_every_answer_is_a_row(tmp_path: Path) -> None:
    path = study(tmp_path / "study", questions="adequate", checks=3)
    with Store(path) as store:
        rate(store, "anna", "adequate", careful)
        rows = list(csv.DictReader(io.StringIO(as_csv(store))))
        count = sum(len(task.candidates) for task in store.plan.tasks)
    assert len(rows) == count
    assert {row["role"] for row in rows} == {"output", "reference", "damaged"}
    assert {row["answer"] for row in rows} == {"true", "false"}
    assert sum(row["again"] == "1" for row in rows) == 2
    assert {row["systems"] for row in rows if row["role"] == "output"} == {"good", "bad"}
