"""Judging: test sets as people name them, output files of other tools, metrics as people write them, paired tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import sacrebleu

from seqloom.api.compare import compare, compare_outputs
from seqloom.api.evaluate import evaluate_files
from seqloom.api.testset import aligned, chosen_examples, from_files, from_spec, metric_settings, metrics_of
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError

REFERENCES = ["the cat sat on the mat", "a dog barked at the moon", "he threw a pie at me", "it rains"]
OUTPUTS = ["the cat sat on a mat", "the dog barked at the moon", "he threw a pie", "it rains"]
OTHERS = ["a cat sat on a mat", "a dog was barking at the moon", "he threw a pie", "rain falls"]


def examples(references: list[str] = REFERENCES, sources: list[str] | None = None) -> list[Example]:
    texts = sources or [f"source {i}" for i in range(len(references))]
    return [Example(source, (text,), "f", i) for i, (source, text) in enumerate(zip(texts, references, strict=True), 1)]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


# --- metrics -----------------------------------------------------------------------------------------------------


def test_metrics_are_written_as_kind_and_keys() -> None:
    assert metric_settings("bleu:order=2,lowercase=true").model_dump()["order"] == 2
    assert metric_settings("meteor:modules=[exact,stem],alpha=0.5").model_dump()["modules"] == ("exact", "stem")
    assert list(metrics_of(["bleu", "bleu:order=2", "wer"], None)) == ["bleu", "BLEU-2", "wer"]
    assert list(metrics_of(None, None)) == ["bleu", "chrf"]


def test_misspelt_metrics_get_the_nearest_name() -> None:
    with pytest.raises(SeqloomError, match='did you mean "bleu"') as caught:
        metric_settings("blue")
    assert caught.value.exit_code == 2
    with pytest.raises(SeqloomError, match='did you mean "order"'):
        metric_settings("bleu:ordr=2")
    with pytest.raises(SeqloomError, match="asked for twice"):
        metrics_of(["bleu", "bleu:lowercase=true"], None)


# --- test sets ---------------------------------------------------------------------------------------------------


def test_a_data_file_of_any_kind_is_a_test_set(tmp_path: Path) -> None:
    pairs = [("a b", "x"), ("c", "y z")]
    tsv = write(tmp_path / "t.tsv", ["\t".join(pair) for pair in pairs])
    jsonl = write(tmp_path / "t.jsonl", [json.dumps({"source": s, "target": [t, "or " + t]}) for s, t in pairs])
    swapped = write(tmp_path / "swapped.tsv", [f"{t}\t{s}" for s, t in pairs])
    zipped = tmp_path / "t.tsv.gz"
    zipped.write_bytes(gzip.compress(Path(tsv).read_bytes()))
    for spec in (tsv, str(zipped), f"{{path: {swapped}, columns: [1, 0]}}"):
        assert [(example.source, *example.references) for example in from_spec(spec)] == pairs
    assert from_spec(jsonl)[1].references == ("y z", "or y z")


def test_bad_data_is_refused(tmp_path: Path) -> None:
    three, two = write(tmp_path / "3", ["a", "b", "c"]), write(tmp_path / "2", ["a", "b"])
    for code, call in (
        ("E_ALIGN", lambda: from_files(three, [two])),
        ("E_ALIGN", lambda: from_files(None, [three, two])),
        ("E_EMPTY", lambda: from_spec(write(tmp_path / "empty.tsv", []))),
        ("E_FILE", lambda: from_spec(str(tmp_path / "missing.tsv"))),
        ("E_USAGE", lambda: from_spec("{kind: tvs, path: x}")),
        ("E_USAGE", lambda: from_spec("{path: x, colums: [0, 1]}")),
        ("E_USAGE", lambda: chosen_examples(None, data=three, references=[two])),
        ("E_USAGE", lambda: chosen_examples(None, source=three)),
        ("E_USAGE", lambda: chosen_examples(None)),
    ):
        with pytest.raises(SeqloomError) as caught:
            call()
        assert caught.value.code == code


def test_outputs_answer_lines_or_different_sources() -> None:
    """Equal sources may be one item with two references: both ways of counting lines are understood."""
    doubled = examples(["x", "y", "z"], ["one", "one", "two"])
    outputs, items = aligned(["a", "b", "c"], doubled, None, "file")
    assert (outputs, len(items)) == (["a", "b", "c"], 3)
    outputs, items = aligned(["a", "c"], doubled, None, "file")
    assert [item.references for item in items] == [("x", "y"), ("z",)]
    with pytest.raises(SeqloomError, match=r"4 outputs for 3 test examples \(2 different sources\)") as caught:
        aligned(["a"] * 4, doubled, None, "file")
    assert caught.value.code == "E_ALIGN"


# --- output files ------------------------------------------------------------------------------------------------


def test_output_files_of_other_tools_get_sacrebleu_numbers(tmp_path: Path) -> None:
    outputs = write(tmp_path / "out.txt", OUTPUTS)
    references = [write(tmp_path / "a", REFERENCES), write(tmp_path / "b", OTHERS)]
    report = evaluate_files(outputs, references, metrics=["bleu", "chrf", "exact"])
    assert report["bleu"] == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES, OTHERS]).score)
    assert report["chrf"] == pytest.approx(sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES, OTHERS]).score)
    assert report["exact"] == 50.0
    assert "nrefs:2" in report.scores["bleu"].signature
    assert report.decoding is None
    assert not report.evaluation.by_length
    assert report.perplexity is None
    json.dumps(report.as_dict(), allow_nan=False)
    with_sources = evaluate_files(outputs, references, write(tmp_path / "src", ["a b c", "a", "a b", "a b c d"]))
    assert sum(bucket.count for bucket in with_sources.evaluation.by_length["BLEU"]) == 4


def test_a_wrong_number_of_outputs_is_refused(tmp_path: Path) -> None:
    reference = write(tmp_path / "a", REFERENCES)
    with pytest.raises(SeqloomError, match="3 outputs for 4 test examples") as caught:
        evaluate_files(write(tmp_path / "out", OUTPUTS[:3]), [reference])
    assert caught.value.code == "E_ALIGN"


# --- comparing ---------------------------------------------------------------------------------------------------


def test_equal_systems_are_not_told_apart() -> None:
    report = compare_outputs(OUTPUTS, OUTPUTS, examples(), metrics_of(None, None))
    for row in report.metrics:
        assert row.better is None
        assert row.randomisation.p == row.bootstrap.p == 1.0
        assert (row.wins.a, row.wins.b, row.wins.ties) == (0, 0, 4)
    assert report.contrasts == ()


@pytest.mark.parametrize("metric", ["bleu", "exact", "wer", "ter"])
def test_the_better_system_wins_whatever_the_direction(metric: str) -> None:
    wanted = [f"word{i} and word{i + 1} and more of them" for i in range(30)]
    wrong = ["nothing of this is right"] * 30
    report = compare_outputs(wrong, wanted, examples(wanted), metrics_of([metric], None), show=3)
    assert report[metric].better == "b"
    assert report[metric].wins.b == 30
    assert report[metric].randomisation.p < 0.01
    assert len(report.contrasts) == 3
    contrast = report.contrasts[0]
    assert (contrast.a, contrast.b, contrast.references) == (wrong[0], wanted[0], (wanted[0],))
    json.dumps(report.as_dict(), allow_nan=False)


def test_two_output_files_need_references(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", OUTPUTS), write(tmp_path / "b.txt", OTHERS)
    with pytest.raises(SeqloomError, match="need references"):
        compare(a, b)
    report = compare(a, b, examples())
    assert (report.a, report.b, report.sentences) == ("a.txt", "b.txt", 4)
    with pytest.raises(SeqloomError) as caught:
        compare(a, write(tmp_path / "c.txt", OTHERS[:2]), examples())
    assert caught.value.code == "E_ALIGN"
