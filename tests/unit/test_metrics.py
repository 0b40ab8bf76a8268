"""Metrics: rows add up, values equal the libraries' own, and odd input stays finite."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence

import jiwer
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from fitting import JUDGED, fitted
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Metric
from seqloom.metrics.evaluation import evaluate_outputs
from seqloom.metrics.perplexity import perplexity

KINDS = list(METRICS)
OF_THE_SET = ("spearman", "cider", "nist", "distinct_1", "distinct_2")  # ranks, weights, repetitions: places among all
# Other references lower a copy's value; bits have no upper end; a copy may repeat itself; one word has no pairs.
NEVER_PERFECT = ("cider", "nist", "distinct_1", "distinct_2", "rouge_2")

PREDICTIONS = ["the cat sat on a mat .", "Hello world", "a b c d e", "", "He does not know; she does."]
REFERENCES = [
    ["the cat sat on the mat .", "a cat was sitting on the mat ."],
    ["hello , world !", "Hello world"],
    ["a b x d e f", "a c"],
    ["not empty", "nothing"],
    ["He doesn't know; she does.", "He does not know, but she does."],
]
ONE_REFERENCE = [wanted[:1] for wanted in REFERENCES]


def build(raw: object) -> Metric:
    return METRICS.build(METRICS.settings(raw))


def streams(references: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(stream) for stream in zip(*references, strict=True)]


texts = st.lists(st.sampled_from(["a", "b", "cat", "cats", "the", ".", "Ähre"]), max_size=7).map(" ".join)


@pytest.mark.parametrize("kind", KINDS)
@given(pairs=st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_rows_are_finite_and_add_up_in_any_order(kind: str, pairs: list[tuple[str, list[str]]]) -> None:
    metric = build(kind)
    predictions, references = fitted(kind, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    whole = metric.statistics(predictions, references)
    assert whole.shape[0] == len(pairs)
    assert np.isfinite(whole).all()
    if kind not in OF_THE_SET:
        alone = [metric.statistics([output], [wanted]) for output, wanted in zip(predictions, references, strict=True)]
        np.testing.assert_array_equal(whole, np.concatenate(alone))
    value = metric.value(whole.sum(axis=0))
    assert (-100 if kind in ("pearson", "spearman") else 0) <= value < math.inf
    assert value == pytest.approx(metric.score(predictions[::-1], references[::-1]))
    assert np.isfinite(metric.sentence_values(whole)).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NEVER_PERFECT])
def test_a_copy_of_a_reference_is_perfect_and_rubbish_is_not(kind: str) -> None:
    metric = build(kind)
    given = ONE_REFERENCE if kind in JUDGED else REFERENCES
    copied, references = fitted(kind, [wanted[-1] for wanted in given], given)
    rubbish, _ = fitted(kind, ["zzz"] * len(given), given)
    perfect = 100 if metric.higher_is_better else 0
    assert metric.score(copied, references) == pytest.approx(perfect)
    assert abs(metric.score(rubbish, references) - perfect) > 70


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_at_all_is_finite(kind: str) -> None:
    metric = build(kind)
    width = metric.statistics(*fitted(kind, ["a"], [["a"]])).shape[1]
    for pair in ([], []), ([""], [[""]]), (["a"], [[""]]), ([""], [["a b", ""]]):
        predictions, references = fitted(kind, *pair)
        rows = metric.statistics(predictions, references)
        assert rows.shape == (len(predictions), width)
        assert math.isfinite(metric.value(rows.sum(axis=0)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_scored_is_refused(kind: str) -> None:
    metric = build(kind)
    with pytest.raises(SeqloomError, match="2 predictions but references for 1") as caught:
        metric.statistics(["a", "b"], [["a"]])
    assert caught.value.code == "E_ALIGN"
    with pytest.raises(SeqloomError, match="sentence 2") as caught:
        metric.statistics(["a", "b"], [["a"], []])
    assert caught.value.code == "E_DATA"


@pytest.mark.parametrize("kind", KINDS)
def test_the_signature_names_the_number_of_references_and_a_version(kind: str) -> None:
    metric = build(kind)
    assert "nrefs:?" in metric.signature()
    metric.statistics(*fitted(kind, PREDICTIONS, ONE_REFERENCE))
    assert "nrefs:1" in metric.signature()
    metric.statistics(*fitted(kind, PREDICTIONS, [*ONE_REFERENCE[:-1], ["one", "two"]]))
    assert "nrefs:var" in metric.signature()
    assert "version:" in metric.signature()


@pytest.mark.parametrize("references", [ONE_REFERENCE, REFERENCES], ids=["one", "two"])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("smooth", ["exp", "floor", "add-k", "none"])
def test_bleu_is_sacrebleus(order: int, smooth: str, references: list[list[str]]) -> None:
    metric = build({"kind": "bleu", "order": order, "smooth": smooth})
    theirs = sacrebleu.BLEU(max_ngram_order=order, smooth_method=smooth)
    expected = theirs.corpus_score(PREDICTIONS, streams(references)).score
    assert metric.score(PREDICTIONS, references) == expected
    rows = metric.statistics(PREDICTIONS, references)
    total = rows.sum(axis=0)
    assert metric.value(total) == metric.value(total) == expected  # the total is not changed by looking at it


@pytest.mark.parametrize("references", [ONE_REFERENCE, REFERENCES], ids=["one", "two"])
def test_chrf_and_ter_are_sacrebleus(references: list[list[str]]) -> None:
    for raw, theirs in (
        ("chrf", sacrebleu.CHRF()),
        ({"kind": "chrf", "word_order": 2}, sacrebleu.CHRF(word_order=2)),
        ("ter", sacrebleu.TER()),
        (
            {"kind": "ter", "case_sensitive": True, "normalized": True},
            sacrebleu.TER(case_sensitive=True, normalized=True),
        ),
    ):
        metric = build(raw)
        expected = theirs.corpus_score(PREDICTIONS, streams(references))
        assert metric.score(PREDICTIONS, references) == expected.score
        assert metric.name == expected.name
        assert metric.signature() == str(theirs.get_signature())


def test_references_may_differ_in_number() -> None:
    ragged = [["the cat sat on the mat .", "a cat ."], ["Hello world"], ["a b x d e f"], ["x", "y", "z"], ["He knows."]]
    padded = [[wanted[i] if i < len(wanted) else None for wanted in ragged] for i in range(3)]
    expected = sacrebleu.BLEU().corpus_score(PREDICTIONS, padded).score
    assert build("bleu").score(PREDICTIONS, ragged) == expected


def test_the_lectures_bleu_2() -> None:
    # 3 of 5 words and 1 of 4 word pairs are right, the output is longer than the reference: (3/5 * 1/4)^(1/2) = 0.387
    metric = build({"kind": "bleu", "order": 2})
    score = metric.score(["the Taro visited the Hanako"], [["Taro visited Hanako"]])
    assert score == pytest.approx(100 * math.sqrt(3 / 5 * 1 / 4))
    assert round(score / 100, 3) == 0.387
    assert metric.name == "BLEU-2"
    assert "order:2" in metric.signature()


def test_a_short_right_sentence_is_worth_something_alone() -> None:
    metric = build("bleu")
    rows = metric.statistics(["good morning"], [["good morning"]])
    assert metric.value(rows[0]) == 0  # corpus BLEU-4 knows no four-grams here
    assert metric.sentence_values(rows)[0] == pytest.approx(100)


def test_edit_rates_are_jiwers() -> None:
    outputs = ["the cat sat", "a  dog", "nothing here", ""]
    wanted = ["the cat sat down", "the dog", "something there then", "gone"]
    references = [[text] for text in wanted]
    assert build("wer").score(outputs, references) == pytest.approx(100 * jiwer.wer(wanted, outputs))
    assert build("per").score(outputs, references) == pytest.approx(100 * jiwer.wer(wanted, outputs))
    flat = [" ".join(text.split()) for text in outputs]
    assert build("cer").score(outputs, references) == pytest.approx(100 * jiwer.cer(wanted, flat))


def test_the_nearest_reference_counts() -> None:
    metric = build("per")
    # K AE T against K AE T S: 1 edit of 4; against D AO G: 3 of 3. The first is nearer, in any order.
    for references in (["K AE T S", "D AO G"], ["D AO G", "K AE T S"]):
        np.testing.assert_array_equal(metric.statistics(["K AE T"], [references]), [[1, 4]])
    # One edit to either: the longer one counts.
    np.testing.assert_array_equal(metric.statistics(["K AE T"], [["K AE", "K AE T S"]]), [[1, 4]])
    # An empty reference costs what was put out.
    np.testing.assert_array_equal(metric.statistics(["K AE T"], [[""]]), [[3, 0]])


def test_exact_match_and_string_error_are_complements_by_any_reference() -> None:
    outputs, references = ["K AE T ", "d", "x"], [["K  AE T", "K AA T"], ["D"], ["y", "x"]]
    assert build("exact").score(outputs, references) == pytest.approx(200 / 3)
    assert build("string_error").score(outputs, references) == pytest.approx(100 / 3)
    assert build("string_error").name == "SER"


def test_perplexity_of_the_lectures_examples() -> None:
    assert perplexity(7 * math.log(10), 7) == pytest.approx(10)
    assert perplexity(3 * math.log(30_000), 3) == pytest.approx(30_000)
    # An operator hears three departments with probability 1/4 each; 30,000 names share the last quarter.
    # 120,000 calls in proportion: 30,000 for each department, and each name once.
    departments = 3 * 30_000 * math.log(4)
    names = 30_000 * math.log(120_000)
    assert perplexity(departments + names, 120_000) == pytest.approx(52.6, abs=0.05)


def test_perplexity_of_nothing_and_of_too_much() -> None:
    assert perplexity(0.0, 0) == 1
    assert perplexity(1e9, 1) == math.inf


def test_an_evaluation_carries_everything_and_is_plain_data() -> None:
    metrics = [build("bleu"), build("cer")]
    evaluation = evaluate_outputs(PREDICTIONS, REFERENCES, metrics, lengths=[7, 2, 14, 65, 11], samples=50)
    assert [score.name for score in evaluation.scores] == ["BLEU", "CER"]
    bleu = evaluation["BLEU"]
    assert bleu.value == metrics[0].score(PREDICTIONS, REFERENCES)
    assert bleu.interval.low <= bleu.value <= bleu.interval.high
    assert "nrefs:2" in bleu.signature
    assert sum(bucket.count for bucket in evaluation.by_length["CER"]) == len(PREDICTIONS)
    plain = json.loads(json.dumps(evaluation.as_dict(), allow_nan=False))
    assert plain["scores"][0]["interval"]["samples"] == 50
    assert plain["by_length"]["BLEU"][-1]["label"] == "61+"


def test_an_evaluation_of_nothing_is_refused() -> None:
    with pytest.raises(SeqloomError) as caught:
        evaluate_outputs([], [], [build("bleu")])
    assert caught.value.code == "E_EMPTY"


def test_metrics_do_not_import_torch() -> None:
    code = "import sys, seqloom.metrics.evaluation, seqloom.metrics.calibration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
