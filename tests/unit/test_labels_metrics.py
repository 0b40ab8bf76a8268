"""Metrics of labels, spans, numbers and rankings: values by hand, rows that stack, refusals with their sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Metric, labels
from seqloom.metrics.labels import Cut, LabelRow, majority, per_label
from seqloom.metrics.numbers import ranks
from seqloom.metrics.significance import bootstrap
from seqloom.metrics.spans import per_span_type, spans_of, write_spans


def build(raw: object) -> Metric:
    return METRICS.build(METRICS.settings(raw))


def single(references: list[str]) -> list[list[str]]:
    return [[text] for text in references]


def refused(metric: Metric, predictions: list[str], references: list[list[str]]) -> SeqloomError:
    with pytest.raises(SeqloomError) as caught:
        metric.statistics(predictions, references)
    return caught.value


# --- accuracy ----------------------------------------------------------------------------------------------------


def test_accuracy_counts_labels_at_their_places() -> None:
    metric = build("accuracy")
    outputs = ["DET NOUN  VERB", "DET NOUN", "NOUN VERB ADV", "", "pos"]
    wanted = single(["DET ADJ VERB", "DET NOUN VERB", "VERB ADV", "X Y", "pos"])
    # 2 of 3; 2 of 3 (one is missing); NOUN/VERB, VERB/ADV, ADV/- are 0 of 3; 0 of 2; 1 of 1: 5 of 12
    np.testing.assert_array_equal(metric.statistics(outputs, wanted), [[2, 3], [2, 3], [0, 3], [0, 2], [1, 1]])
    assert metric.score(outputs, wanted) == pytest.approx(100 * 5 / 12)
    assert (metric.name, metric.higher_is_better) == ("accuracy", True)


def test_several_references_are_judgments() -> None:
    judged = [["yes", "no", "no"], ["yes", "no"], [" b  a", "b c", "b a", "b c", "x"]]
    outputs = ["yes", "yes", "b c"]
    # The majority says no; of a tie the first, yes; "b a" and "b c" twice each, "b a" first: 1 of 2 labels is right.
    np.testing.assert_array_equal(build("accuracy").statistics(outputs, judged), [[0, 1], [1, 1], [1, 2]])
    lenient = build({"kind": "accuracy", "judgments": "any"})
    np.testing.assert_array_equal(lenient.statistics(outputs, judged), [[1, 1], [1, 1], [2, 2]])
    assert "judgments:majority" in build("accuracy").signature()
    assert "judgments:any" in lenient.signature()
    assert majority(["b", "a", "a", "b"]) == "b"


# --- F1 ----------------------------------------------------------------------------------------------------------

SAID = ["A A B", "B", "C C"]
GOLD = single(["A B B", "A", "C"])
# A: right 1 (the first), needless 1 (the second), missed 1 (sentence 2); B: right 1, needless 1 (sentence 2), missed 1
# (the second word); C: right 1, needless 1 (the word too many), missed 0.
F1_A, F1_B, F1_C = 2 / 4, 2 / 4, 2 / 3


def test_f1_by_hand() -> None:
    macro, micro = build("f1"), build({"kind": "f1", "average": "micro"})
    assert macro.score(SAID, GOLD) == pytest.approx(100 * (F1_A + F1_B + F1_C) / 3)
    assert micro.score(SAID, GOLD) == pytest.approx(100 * 2 * 3 / (2 * 3 + 3 + 2))
    assert (macro.name, micro.name) == ("macro F1", "micro F1")
    assert "average:macro|labels:3|judgments:majority" in macro.signature()


def test_micro_f1_of_single_labels_is_accuracy() -> None:
    outputs, wanted = ["a", "b", "c", "a"], single(["a", "c", "c", "d"])
    assert build({"kind": "f1", "average": "micro"}).score(outputs, wanted) == build("accuracy").score(outputs, wanted)


def test_a_label_that_no_reference_has_is_one_label_more() -> None:
    # a: 1 right of 2 wanted, nothing needless: 2/3. y and z share a column: nothing right, 2 needless: 0.
    metric = build("f1")
    assert metric.score(["a", "y", "z"], single(["a", "a", "b"])) == pytest.approx(100 * (2 / 3 + 0 + 0) / 3)
    # A later call keeps the columns a, b, other: a reference z that is found is right there.
    rows = metric.statistics(["z", "z"], single(["z", "y"]))
    np.testing.assert_array_equal(rows, [[0, 0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1, 1]])


def test_named_labels_alone_count() -> None:
    metric = build({"kind": "f1", "average": "micro", "labels": ["per", "org"]})
    outputs, wanted = ["per", "none", "org", "none"], single(["per", "org", "none", "none"])
    # per: 1 right; org: 1 missed, 1 needless; what is "none" on both sides counts nowhere: 2 / (2 + 1 + 1)
    assert metric.score(outputs, wanted) == pytest.approx(100 * 2 / 4)
    assert metric.statistics(outputs, wanted).shape == (4, 6)
    assert metric.statistics([], []).shape == (0, 6)
    assert "labels:per,org" in metric.signature()


LABELS = st.lists(st.sampled_from("ABCD"), max_size=4).map(" ".join)
PAIRS = st.lists(st.tuples(LABELS, st.lists(LABELS, min_size=1, max_size=3)), min_size=1, max_size=5)


@given(first=PAIRS, second=PAIRS)
@settings(deadline=None)
def test_rows_of_two_calls_stack(first: list[tuple[str, list[str]]], second: list[tuple[str, list[str]]]) -> None:
    def sides(pairs: list[tuple[str, list[str]]]) -> tuple[list[str], list[list[str]]]:
        return [output for output, _ in pairs], [wanted for _, wanted in pairs]

    for raw in "accuracy", "f1", {"kind": "f1", "labels": ["A", "D"]}, "multilabel_f1", "mrr", "recall_at":
        metric = build(raw)
        stacked = np.concatenate([metric.statistics(*sides(first)), metric.statistics(*sides(second))])
        np.testing.assert_array_equal(stacked, metric.statistics(*sides(first + second)))


def test_micro_f1_is_the_same_however_the_calls_are_cut() -> None:
    for cut in range(1, 3):
        metric = build({"kind": "f1", "average": "micro"})
        rows = [metric.statistics(SAID[:cut], GOLD[:cut]), metric.statistics(SAID[cut:], GOLD[cut:])]
        assert metric.value(np.concatenate(rows).sum(axis=0)) == pytest.approx(100 * 6 / 11)


def test_too_many_labels_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABELS", 3)
    assert build("f1").score(["a b c"], [["a b c"]]) == 100
    error = refused(build("f1"), ["a"], [["a b c d"]])
    assert error.code == "E_DATA"
    assert "4 different labels in the references, at most 3" in error.what


@pytest.mark.parametrize("labels", [["a b"], [""], ["a "], "a", [f"l{i}" for i in range(1001)]])
def test_labels_that_cannot_be_are_refused(labels: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        METRICS.settings({"kind": "f1", "labels": labels})


def test_the_table_of_labels() -> None:
    assert per_label(SAID, GOLD) == [
        LabelRow("A", precision=50, recall=50, f1=50, wanted=2, produced=2),
        LabelRow("B", precision=50, recall=50, f1=50, wanted=2, produced=2),
        LabelRow("C", precision=50, recall=100, f1=pytest.approx(200 / 3), wanted=1, produced=2),
    ]
    assert per_label(["x"], [["y"]]) == [LabelRow("y", 0, 0, 0, 1, 0), LabelRow("x", 0, 0, 0, 0, 1)]
    assert per_label([], []) == []
    with pytest.raises(SeqloomError):
        per_label(["a"], [])


def test_a_whole_text_may_be_one_label() -> None:
    rows = per_label(["very good", " very  bad", ""], [["very good"], ["very good"], ["very bad"]], Cut(whole=True))
    assert [(row.label, row.wanted, row.produced) for row in rows] == [("very good", 2, 1), ("very bad", 1, 1)]
    assert [(row.precision, row.recall) for row in rows] == [(100.0, 50.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("references", "are_spans"),
    [
        ([["O B-X I-X"], ["_ S-Y"]], True),
        ([["B I O"]], True),
        ([["O O"], ["_"]], False),
        ([["NOUN O"]], False),
        ([["B-X NOUN"]], False),
        ([[""]], False),
    ],
)
def test_which_tags_write_spans(references: list[list[str]], are_spans: bool) -> None:
    assert write_spans(references) == are_spans


def test_sets_of_labels() -> None:
    metric = build("multilabel_f1")
    outputs = ["a; b c ;", "b;a;a", "", "x"]
    wanted = [["b  c;d"], ["a; b"], [""], ["y;z", "x", " z ; y"]]
    # {a, "b c"} and {"b c", d}: 1 right, 1 needless, 1 missed; the same set; nothing; x where two of three say {y, z}.
    np.testing.assert_array_equal(metric.statistics(outputs, wanted), [[1, 1, 1], [2, 0, 0], [0, 0, 0], [0, 1, 2]])
    assert metric.score(outputs, wanted) == pytest.approx(100 * 2 * 3 / (2 * 3 + 2 + 3))


# --- spans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-PER I-PER O B-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("I-PER I-PER O I-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),  # IOB1: I- begins after nothing
        ("I-PER B-PER I-PER", {(0, 1, "PER"), (1, 3, "PER")}),  # IOB1: B- parts two of one type
        ("I-PER I-LOC", {(0, 1, "PER"), (1, 2, "LOC")}),  # another type
        ("B-PER I-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("S-PER B-LOC I-LOC E-LOC S-PER", {(0, 1, "PER"), (1, 4, "LOC"), (4, 5, "PER")}),  # BIOES
        ("B-LOC E-LOC I-LOC", {(0, 2, "LOC"), (2, 3, "LOC")}),  # after an end something begins
        ("B-LOC E-LOC E-LOC O", {(0, 2, "LOC"), (2, 3, "LOC")}),
        ("S-LOC I-LOC", {(0, 1, "LOC"), (1, 2, "LOC")}),
        ("B-LOC L-LOC U-PER", {(0, 2, "LOC"), (2, 3, "PER")}),  # BILOU
        ("B-a-b I-a-b", {(0, 2, "a-b")}),
        ("B I O I", {(0, 2, ""), (3, 4, "")}),  # spans without types
        ("O _ NOUN BX- X-PER", set()),
        ("", set()),
    ],
)
def test_tags_as_spans(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert spans_of(tags.split()) == spans


def test_span_f1_by_hand() -> None:
    metric = build("span_f1")
    outputs = ["B-PER I-PER O B-LOC", "B-ORG O", "O O", "B-PER O", "say nothing"]
    wanted = single(["B-PER I-PER O B-ORG", "B-ORG I-ORG", "O O", "I-PER", "O B-LOC"])
    # PER right, LOC for ORG; too short; nothing on both sides; IOB1 is the same span; 1 missed
    expected = [[1, 2, 2], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]]
    np.testing.assert_array_equal(metric.statistics(outputs, wanted), expected)
    # 2 right of 4 produced and 5 wanted: precision 1/2, recall 2/5, F1 = 2 * 2 / (4 + 5)
    assert metric.score(outputs, wanted) == pytest.approx(100 * 4 / 9)
    assert metric.score(["O"], [["O"]]) == 0
    assert per_span_type(outputs, wanted) == [
        LabelRow("ORG", 0, 0, 0, wanted=2, produced=1),
        LabelRow("PER", 100, 100, 100, wanted=2, produced=2),
        LabelRow("LOC", 0, 0, 0, wanted=1, produced=1),
    ]


def test_references_that_are_no_spans_are_refused() -> None:
    error = refused(build("span_f1"), ["O", "O"], single(["B-PER O", "O NOUN"]))
    assert (error.code, error.where) == ("E_DATA", "sentence 2, word 2")
    assert "'NOUN'" in error.what


# --- numbers -----------------------------------------------------------------------------------------------------


def test_pearson_by_hand() -> None:
    metric = build("pearson")
    outputs, wanted = ["1", "2", " 4 "], single(["2", "3.0", "1e1"])
    np.testing.assert_array_equal(
        metric.statistics(outputs, wanted), [[1, 1, 2, 1, 4, 2], [1, 2, 3, 4, 9, 6], [1, 4, 10, 16, 100, 40]]
    )
    # n 3, Sx 7, Sy 15, Sxx 21, Syy 113, Sxy 48: (144 - 105) / sqrt((63 - 49) (339 - 225)) = 39 / sqrt(1596)
    assert metric.score(outputs, wanted) == pytest.approx(100 * 39 / math.sqrt(1596))
    assert metric.score(["1", "2", "3"], single(["6", "4", "2"])) == pytest.approx(-100)


def test_judgments_are_averaged() -> None:
    judged = [["1", "3"], ["4"], ["0", "1", "5"]]  # 2, 4, 2
    np.testing.assert_array_equal(build("mse").statistics(["2", "1", "5"], judged), [[0, 1], [9, 1], [9, 1]])
    assert build("mse").score(["2", "1", "5"], judged) == pytest.approx(6)
    for kind in ("pearson", "spearman", "mse"):
        assert "judgments:mean" in build(kind).signature()


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("constant", ["0", "0.1", "-3.7e50", "123456789.1"])
def test_a_side_without_spread_correlates_with_nothing(kind: str, constant: str) -> None:
    varied = [str(number) for number in np.random.default_rng(1).normal(size=200)]
    metric = build(kind)
    assert metric.score([constant] * 200, single(varied)) == 0
    assert metric.score(varied, [[constant]] * 200) == 0
    interval = bootstrap(metric, metric.statistics([constant] * 200, single(varied)), samples=50)
    assert (interval.low, interval.high) == (0, 0)


@given(
    st.lists(st.tuples(*[st.integers(-20, 20)] * 2), min_size=2, max_size=12),
    st.sampled_from([1.0, 1e-3, 1e6]),
)
@settings(deadline=None)
def test_correlations_are_numpys(pairs: list[tuple[int, int]], scale: float) -> None:
    x, y = np.array(pairs, dtype=np.float64).T * scale
    outputs, wanted = [repr(float(one)) for one in x], [[repr(float(one))] for one in y]
    # Spearman's definition, one number at a time: 1 + how many are smaller + half of the others that are equal
    placed = [[1 + sum(side < one) + (sum(side == one) - 1) / 2 for one in side] for side in (x, y)]
    for kind, sides in (("pearson", (x, y)), ("spearman", placed)):
        is_flat = min(np.ptp(side) for side in sides) == 0
        expected = 0.0 if is_flat else 100 * np.corrcoef(*sides)[0, 1]
        assert build(kind).score(outputs, wanted) == pytest.approx(expected, abs=1e-6)
    expected = pytest.approx(float(np.mean((x - y) ** 2)))
    assert build("mse").score(outputs, wanted) == expected


def test_spearman_by_hand() -> None:
    # Ranks 1, 2, 3, 4 against 1, 3, 2, 4: 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15) = 0.8; only the order counts.
    metric = build("spearman")
    assert metric.score(["1", "10", "100", "1e9"], single(["-5", "7", "6", "8"])) == pytest.approx(80)
    np.testing.assert_array_equal(ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])), [4, 1, 4, 2, 4])
    assert "ranks:of-the-whole-set,also-in-resamples" in metric.signature()


def test_squares_may_be_large_and_stay_finite() -> None:
    outputs, wanted = ["1e100", "-1e100", "0"], single(["-1e100", "1e100", "1"])
    for kind in ("pearson", "spearman", "mse"):
        assert math.isfinite(build(kind).score(outputs, wanted))


@pytest.mark.parametrize("kind", ["pearson", "spearman", "mse"])
@pytest.mark.parametrize("text", ["", "much", "nan", "inf", "-inf", "1,5", "1 2", "1e101", "9" * 400])
def test_what_is_no_finite_number_is_refused_with_its_sentence(kind: str, text: str) -> None:
    for outputs, wanted, side in (
        (["1", text], single(["1", "2"]), "output"),
        (["1", "2"], [["1"], ["2", text]], "ref"),
    ):
        error = refused(build(kind), outputs, wanted)
        assert (error.code, error.where) == ("E_DATA", "sentence 2")
        assert error.what.startswith(f"the {side}")


# --- rankings ----------------------------------------------------------------------------------------------------


def test_rankings_by_hand() -> None:
    outputs = ["a\tb\tc", "b\ta  x\tc", "x\ty", "", "c"]
    wanted = [["a"], ["a x", "c"], ["a"], ["a"], ["b", "c"]]
    # The first right ones stand at 1, 2, nowhere, nowhere, 1.
    assert build("recall_at").score(outputs, wanted) == pytest.approx(100 * 2 / 5)
    assert build({"kind": "recall_at", "k": 2}).score(outputs, wanted) == pytest.approx(100 * 3 / 5)
    assert build("mrr").score(outputs, wanted) == pytest.approx(100 * (1 + 1 / 2 + 0 + 0 + 1) / 5)
    assert [build(raw).name for raw in ("recall_at", {"kind": "recall_at", "k": 10}, "mrr")] == [
        "recall@1",
        "recall@10",
        "MRR",
    ]
    assert "k:10" in build({"kind": "recall_at", "k": 10}).signature()


@pytest.mark.parametrize("k", [0, -1, 1.5, "all"])
def test_k_is_at_least_one(k: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        METRICS.settings({"kind": "recall_at", "k": k})
