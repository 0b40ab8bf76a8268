"""The data report finds each kind of trouble where it was put; the profile tells kinds of data apart."""

from __future__ import annotations

import json

import pytest

from seqloom.data.characters import dominant_script, trouble
from seqloom.data.profile import profile
from seqloom.data.readers import Example
from seqloom.data.report import WHY, DataReport, examine

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "omega"]


def clean(count: int = 200, file: str = "train.tsv", start: int = 0) -> list[tuple[str, str]]:
    return [
        (f"{WORDS[i % 12]} {WORDS[i // 12 % 12]} {i}", f"{WORDS[i // 12 % 12]} {i} x")
        for i in range(start, start + count)
    ]


def examples(pairs, file: str = "train.tsv") -> list[Example]:
    return [
        Example(source, target if isinstance(target, tuple) else (target,), file, line)
        for line, (source, target) in enumerate(pairs, 1)
    ]


def found(report: DataReport) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    return {(finding.set, finding.kind): (finding.count, finding.where) for finding in report.findings}


def test_clean_data_has_no_findings() -> None:
    report = examine(examples(clean()), examples(clean(20, start=300), "dev"), examples(clean(20, start=400), "test"))
    assert report.findings == ()
    assert [summary.pairs for summary in report.sets] == [200, 20, 20]
    assert "nothing suspicious found" in report.lines()
    assert report.sets[0].source.script == "LATIN"
    assert report.sets[0].source.percentiles["max"] == max(len(source) for source, _ in clean())


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        (("  ", "a target"), "empty_source"),
        (("a source", ""), "empty_target"),
        (("word " * 100, "mot " * 100), "long_source"),
        (("word " * 100, "mot " * 100), "long_target"),
        (("short", "a target that goes on and on, as misaligned pairs like to do, again and again"), "length_ratio"),
        (("lost \ufffd here", "lost it here"), "replacement_character"),
        (("bell \x07 rings", "it rings now"), "control_character"),
        (("das MÃ¤dchen", "the girl is"), "mojibake"),
        (("itâ€™s here now", "it is here"), "mojibake"),
        (("e\u0301tude alpha", "study of it"), "not_composed"),
        (("привет мир тут", "hello world"), "odd_script_source"),
        (("hello world now", "你好世界你好世界"), "odd_script_target"),
        (("same on both", "same on both"), "copies"),
    ],
)
def test_each_trouble_is_found_on_its_line(pair: tuple[str, str], kind: str) -> None:
    pairs = [*clean(150), pair, *clean(50, start=150)]
    assert found(examine(examples(pairs)))["train", kind] == (1, ("train.tsv:151",))


def test_duplicates_name_both_lines() -> None:
    pairs = [*clean(30), clean(30)[4], clean(30)[4]]
    count, where = found(examine(examples(pairs)))["train", "duplicate_pairs"]
    assert count == 2
    assert where == ("train.tsv:31 (first at train.tsv:5)", "train.tsv:32 (first at train.tsv:5)")


def test_one_source_with_several_targets() -> None:
    source = clean(30)[4][0]
    assert found(examine(examples([*clean(30), (source, "another x")])))["train", "several_targets"] == (
        1,
        ("train.tsv:5",),
    )
    several = examples([("a source here", ("one right", "one wrong", "one right")), *clean(30)])
    assert examine(several).findings == (), "references of one example are meant"


def test_leaks_name_both_places_and_each_line_once() -> None:
    train = clean(50)
    test = [*clean(10, start=100), train[7], (train[9][0], "another x"), (train[3][0], ("another y", train[3][1]))]
    report = found(examine(examples(train), test=examples(test, "test.tsv")))
    assert report["test", "leaked_pairs"] == (2, ("test.tsv:11 = train.tsv:8", "test.tsv:13 = train.tsv:4"))
    assert report["test", "leaked_sources"] == (1, ("test.tsv:12 = train.tsv:10",))


def test_only_the_first_places_are_named_but_all_are_counted() -> None:
    report = examine(examples([*clean(100), *[("", f"t {i}") for i in range(40)]]))
    count, where = found(report)["train", "empty_source"]
    assert (count, len(where)) == (40, 5)
    assert any(line.endswith(" ...") for line in report.lines())


def test_the_worst_comes_first_and_all_is_plain_data() -> None:
    train = [*clean(50), ("same x", "same x"), ("", "x")]
    report = examine(examples(train), dev=[], test=examples(train, "test"))
    ranks = [["error", "warning", "note"].index(finding.severity) for finding in report.findings]
    assert ranks == sorted(ranks)
    assert ("dev", "no_pairs") in found(report)
    plain = json.loads(json.dumps(report.as_dict()))
    assert {finding["kind"] for finding in plain["findings"]} <= set(WHY)
    assert all(finding["why"] and finding["severity"] for finding in plain["findings"])


def test_a_side_of_many_scripts_has_no_odd_one() -> None:
    pairs = [
        (text, "some text x") for text in ("hello there", "привет мир", "καλημέρα", "안녕하세요") for _ in range(9)
    ]
    assert not any(kind.startswith("odd_script") for _, kind in found(examine(examples(pairs))))


def test_scripts() -> None:
    assert dominant_script("Straße 12") == "LATIN"
    assert dominant_script("東京タワーのひらがな") == "CJK"
    assert dominant_script("12 34 !") == ""
    assert trouble("Größe «Ä», naïve café – São Paulo") == []


def test_profile_tells_phonemes_words_and_text_apart() -> None:
    phonemes = ["AH B K", "D EH F G", "K AE T", "B IY D", "G OW"]
    pairs = [(f"word{i % 977}", phonemes[i % 5]) for i in range(2000)]
    seen = profile(examples(pairs), limit=500)
    assert (seen.pairs, seen.sampled) == (2000, 500)
    assert (seen.source.looks, seen.target.looks) == ("strings", "symbols")
    assert seen.target.distinct_words == 11
    text = profile(
        examples(
            [(f"the {a} house number {i} is {b}", "这是一个很长的句子" * 2) for i, (a, b) in enumerate(clean(300))]
        )
    )
    assert (text.source.looks, text.target.looks) == ("text", "text")
    assert (text.source.script, text.target.script) == ("LATIN", "CJK")
    assert text.target.characters == (18, 18, 18, 18)


def test_profile_of_nothing() -> None:
    nothing = profile([])
    assert (nothing.pairs, nothing.source.looks, nothing.source.characters) == (0, "strings", (0, 0, 0, 0))
