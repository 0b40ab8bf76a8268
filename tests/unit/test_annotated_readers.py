"""Words with tags and plain text: every unit, plain and gzipped, from files and stdin; what is wrong has its line."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from seqloom.data import annotated, texts
from seqloom.data.files import Tally
from seqloom.data.readers import READERS, Dataset, PairSettings, dataset_settings, files_of, read, spooled
from seqloom.errors import SeqloomError

KINDS = [kind for kind in READERS if not issubclass(READERS.settings_class(kind), PairSettings)]


def row(number: str, form: str, lemma: str = "_", upos: str = "_", xpos: str = "_", feats: str = "_") -> str:
    return "\t".join([number, form, lemma, upos, xpos, feats, "0", "root", "_", "_"])


CONLLU = "\n".join(
    [
        "# sent_id = 1",
        "# text = Don't go.",
        row("1-2", "Don't"),  # a multiword token: its words follow
        row("1", "Do", "do", "AUX", "VB", "Mood=Imp"),
        row("2", "n't", "not", "PART", "RB"),
        row("2.1", "you", "you", "PRON", "PRP"),  # an empty node: nobody said it
        row("3", "go", "go", "VERB", "VB"),
        "",
        "# newdoc",
        "",
        "",
        "# text = 10 000",
        row("1", "10 000", "10\u00a0000", "NUM", "C D"),
        row("2", "_", "_", "", "_"),
    ]
)
COLUMNS = "-DOCSTART- -X- O O\n\nEU NNP  B-ORG\nrejects\tVBZ\tO\r\n\n\n# SYM O\n"
TEXTS = "To be,\n  or not \r\n\n \t\nthat is\u2028the question\n"
FILES = {"conllu": CONLLU, "columns": COLUMNS, "text": TEXTS}
EXPECTED = {
    "conllu": [("Do n't go", "AUX PART VERB", 4), ("10\u2423000 _", "NUM _", 13)],
    "columns": [("EU rejects", "NNP VBZ", 3), ("#", "SYM", 7)],
    "text": [("", "To be,", 1), ("", "  or not ", 2), ("", "that is\u2028the question", 5)],
}


def found(raw: object, **options: object) -> list[tuple[str, str, int]]:
    return [(one.source, one.target, one.line) for one in read(dataset_settings(raw), **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read_from_files_and_stdin(
    kind: str, pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pack(FILES[kind].encode())
    (tmp_path / "x").write_bytes(data)
    chosen = dataset_settings({"kind": kind, "path": "x"})
    assert found(chosen, base=tmp_path) == EXPECTED[kind]
    assert files_of(chosen, tmp_path) == [str(tmp_path / "x")]
    assert next(read(chosen, base=tmp_path)).file == str(tmp_path / "x")
    assert TypeAdapter(Dataset).validate_python(TypeAdapter(Dataset).dump_python(chosen)) == chosen
    stdin = dataset_settings({"kind": kind, "path": "-"})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    kept = spooled(stdin, tmp_path / "spool")
    assert [found(kept) for _ in range(2)] == [EXPECTED[kind]] * 2, "a copy can be read again"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert next(read(stdin)).file == "<stdin>"


@pytest.mark.parametrize("kind", KINDS)
def test_constants_and_importance_and_nothing_of_pairs(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(FILES[kind])
    raw = {"kind": kind, "path": str(tmp_path / "x"), "constants": {"lang": "en"}, "importance": 0.5, "share": 0.1}
    chosen = dataset_settings(raw)
    assert chosen.extra_names == ("lang",)
    for one in read(chosen):
        assert (one.extras, one.weight, one.links) == ({"lang": "en"}, 0.5, None)
    for key, value in {"extras": {"tags": 2}, "weight": 2, "alignment": 3, "columns": [0, 1]}.items():
        with pytest.raises(ValueError, match=f"unknown key '{key}'"):
            dataset_settings({**raw, key: value})


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_file_holds_no_examples(kind: str, tmp_path: Path) -> None:
    for content in ("", "\n", " \n\t\n"):
        (tmp_path / "x").write_text(content)
        assert found({"kind": kind, "path": str(tmp_path / "x")}) == []
    assert found({"kind": "text", "unit": "stream", "path": str(tmp_path / "x")}) == []


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("a.conllu", "conllu"),
        ("a.CONLLU.gz", "conllu"),
        ({"path": "a.conllu", "tag": "xpos"}, "conllu"),
        ("a.txt", "text"),
        ("a.txt.gz", "text"),
        ({"path": "a.txt", "unit": "stream"}, "text"),
        ({"path": "a.txt", "columns": [1, 0]}, "tsv"),
        ({"path": "a.txt", "extras": {"tags": 2}}, "tsv"),
        ({"path": "a.txt", "source": "q"}, "jsonl"),
        ("-", "tsv"),
        ("a.tsv", "tsv"),
    ],
)
def test_names_and_keys_tell_the_format(raw: object, kind: str) -> None:
    assert dataset_settings(raw).kind == kind


# --- words and tags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "tags"),
    [
        ("upos", ["AUX PART VERB", "NUM _"]),
        ("xpos", ["VB RB VB", "C\u2423D _"]),
        ("feats", ["Mood=Imp _ _", "_ _"]),
        ("deprel", ["root root root", "root root"]),
        ("lemma", ["do not go", "10\u2423000 _"]),  # a no-break space separates words as well
    ],
)
def test_every_column_of_conllu_may_be_the_tag(tag: str, tags: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text(CONLLU)
    chosen = {"path": str(tmp_path / "x.conllu"), "tag": tag}
    assert [target for _, target, _ in found(chosen)] == tags
    assert found({**chosen, "form": "lemma"})[0][0] == "do not go"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [("EU rejects", "NNP VBZ", 3), ("#", "SYM", 7)]),
        ({"tag": -1}, [("EU rejects", "B-ORG O", 3), ("#", "O", 7)]),
        ({"word": 1, "tag": 0}, [("NNP VBZ", "EU rejects", 3), ("SYM", "#", 7)]),
        ({"skip": ["-DOCSTART-", "# "]}, [("EU rejects", "NNP VBZ", 3)]),
        ({"skip": []}, [("-DOCSTART-", "-X-", 1), ("EU rejects", "NNP VBZ", 3), ("#", "SYM", 7)]),
    ],
)
def test_columns_are_chosen(choice: dict[str, object], expected: list[tuple[str, str, int]], tmp_path: Path) -> None:
    (tmp_path / "x").write_text(COLUMNS)
    assert found({"kind": "columns", "path": str(tmp_path / "x"), **choice}) == expected


def test_tabs_leave_blanks_to_the_words(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("New York\tB X\n\tO\n\u3000\tO\n")
    chosen = {"kind": "columns", "path": str(tmp_path / "x"), "separator": "tab"}
    assert found(chosen) == [("New\u2423York _ \u2423", "B\u2423X O O", 1)]
    (tmp_path / "x").write_text("York B\n\u3000 O\n")
    assert found({**chosen, "separator": "blank"}) == [("York \u2423", "B O", 1)], "a space of another kind is a word"


@given(st.lists(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=4)] * 2), min_size=1)))
def test_words_and_tags_stay_as_many_as_they_were(sentences: list[list[tuple[str, str]]]) -> None:
    for sentence in sentences:
        words = [annotated._one_word(word) for pair in sentence for word in pair]
        assert len(" ".join(words).split()) == len(words)
        assert " ".join(words).split() == words


@pytest.mark.parametrize(
    ("raw", "text", "line", "said"),
    [
        ({"kind": "conllu"}, f"{row('1', 'a')}\n1\tb\tNOUN\n", 2, "3 column(s), but a line of CoNLL-U has 10"),
        ({"kind": "conllu"}, f"{row('1', 'a')}\n\n{row('1', 'b')}\tx\n", 3, "11 column(s)"),
        ({"kind": "columns"}, "a X\n\nb Y\nc\nd Z\n", 4, "1 column(s), but 2 are needed"),
        ({"kind": "columns", "tag": 3}, "a b c\n", 1, "3 column(s), but 4 are needed: the word is column 0, its tag"),
        ({"kind": "columns", "tag": -1}, "a X\nb\n", 2, "1 column(s), but 2 are needed"),
        ({"kind": "columns", "word": 1, "tag": -1}, "1 a X\n2 b\n", 2, "2 column(s), but 3 are needed"),
        ({"kind": "columns", "separator": "tab"}, "a\tX\nb Y\n", 2, "1 column(s), but 2"),
        ({"kind": "columns"}, "a X\n\nYork B\nNew York B\n", 4, "3 columns, but the sentence began with 2"),
        ({"kind": "columns", "tag": -1}, "a NN X\nb Y\n", 2, "2 columns, but the sentence began with 3"),
    ],
)
def test_a_line_with_too_few_columns_or_others_than_its_sentence_is_named(
    raw: dict[str, object], text: str, line: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(SeqloomError) as caught:
        found({**raw, "path": str(tmp_path / "x")})
    assert caught.value.code == "E_DATA"
    assert caught.value.where == f"{tmp_path / 'x'}:{line}"
    assert said in caught.value.what
    assert caught.value.fix


def test_a_sentence_with_a_refused_line_is_left_out_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a X\nb\nc\n\nd Y\n")
    refused: list[SeqloomError] = []
    kept = found({"kind": "columns", "path": str(tmp_path / "x")}, refuse=refused.append)
    assert kept == [("d", "Y", 5)]
    assert [error.where.rpartition(":")[2] for error in refused] == ["2", "3"]


@pytest.mark.parametrize(
    "choice", [{"word": -1}, {"tag": -2}, {"tag": 0}, {"tag": 1001}, {"separator": ","}, {"skip": [""]}, {"unit": "x"}]
)
def test_columns_that_cannot_be_are_refused(choice: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        dataset_settings({"kind": "columns", "path": "x", **choice})
    with pytest.raises(ValueError, match=r"."):
        dataset_settings({"kind": "conllu", "path": "x", "tag": "head"})


def test_a_file_without_blank_lines_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotated, "MAX_WORDS", 2)
    (tmp_path / "x").write_text("a X\nb X\n\nc X\nd X\ne X\nf X\n\ng X\n")
    refused: list[SeqloomError] = []
    kept = found({"kind": "columns", "path": str(tmp_path / "x")}, refuse=refused.append)
    assert kept == [("a b", "X X", 1), ("g", "X", 9)]
    [error] = refused
    assert (error.code, error.where) == ("E_DATA", f"{tmp_path / 'x'}:4")
    assert "more than 2 words" in error.what


# --- plain text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("documents", [("", "To be,\n  or not ", 1), ("", "that is\u2028the question", 5)]),
        ("stream", [("", "To be,\n", 1), ("", "  or not \n", 2), ("", "\n \t\nthat is\u2028the question\n", 5)]),
    ],
)
def test_units_of_text(unit: str, expected: list[tuple[str, str, int]], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbf" + TEXTS.encode())
    assert found({"path": str(tmp_path / "x.txt"), "unit": unit}) == expected
    (tmp_path / "x.txt").write_text("one\ntwo")
    whole = "".join(text for _, text, _ in found({"path": str(tmp_path / "x.txt"), "unit": unit}))
    assert whole.rstrip("\n") == "one\ntwo"


@pytest.mark.parametrize("unit", ["documents"])
def test_a_text_is_bounded(unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_TEXT_BYTES", 7)
    path = tmp_path / "x.txt"
    raw = {"path": str(path), "unit": unit}
    for content in ("abc\ndef", "aü\nüa"):
        path.write_text(content)
        assert found(raw) == [("", content, 1)], "seven bytes are not too many"
    path.write_text("\nabc\ndef\ng\nh\n\nx\n")
    with pytest.raises(SeqloomError, match="more than 7 bytes") as caught:
        found(raw)
    assert caught.value.code == "E_DATA"
    assert caught.value.where == (f"{path}:2" if unit == "documents" else str(path))
    rest = found(raw, refuse=lambda error: None)
    assert rest == ([("", "x", 7)] if unit == "documents" else []), "what is refused is left out"


# --- what is not UTF-8 -------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[dict[str, object], bytes]] = {
    "conllu": (
        {},
        "\n".join([row("1", "a", upos="X"), row("2", "b?", upos="Y"), "", row("1", "c", upos="Z")]).encode(),
    ),
    "columns": ({}, b"a X\nb? Y\n\nc Z"),
    "lines": ({"kind": "text"}, b"a\rX\nb?\r\n\nc\n"),
    "documents": ({"kind": "text", "unit": "documents"}, b"a\rX\nb?\n\nc\n"),
    "stream": ({"kind": "text", "unit": "stream"}, b"a\rX\nb?\r\n\nc\n"),
}
SKIPPED = {
    "conllu": [("c", "Z")],
    "columns": [("c", "Z")],
    "lines": [("", "a\rX"), ("", "c")],
    "documents": [("", "a\rX"), ("", "c")],
    "stream": [("", "a\rX\n"), ("", "\nc\n")],
}
MENDED = {
    "conllu": [("a b\ufffd", "X Y"), ("c", "Z")],
    "columns": [("a b\ufffd", "X Y"), ("c", "Z")],
    "lines": [("", "a\rX"), ("", "b\ufffd"), ("", "c")],
    "documents": [("", "a\rX\nb\ufffd"), ("", "c")],
    "stream": [("", "a\rX\n"), ("", "b\ufffd\n"), ("", "\nc\n")],
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_bytes_that_are_not_utf8_are_named_skipped_or_mended(name: str, tmp_path: Path) -> None:
    choice, data = BROKEN[name]
    data = data.replace(b"?", b"\xff")
    (tmp_path / "x").write_bytes(data)
    raw = {"kind": name, "path": str(tmp_path / "x"), **choice}
    with pytest.raises(SeqloomError, match="0xFF") as caught:
        found(raw)
    assert caught.value.code == "E_UTF8"
    assert caught.value.where == f"{tmp_path / 'x'}:2, byte offset {data.index(0xFF):,}"
    for policy, expected in ("skip", SKIPPED), ("replace", MENDED):
        tally = Tally()
        kept = found(raw, on_bad_utf8=policy, tally=tally)
        assert [(source, target) for source, target, _ in kept] == expected[name]
        assert tally == {"bad_utf8": 1}


def test_a_line_over_the_cap_costs_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.data.files.MAX_LINE_BYTES", 5)
    (tmp_path / "x").write_text("a X\nlong X\n\nb Y\n")
    tally = Tally()
    assert found({"kind": "columns", "path": str(tmp_path / "x")}, tally=tally) == [("b", "Y", 4)]
    assert tally == {"line_too_long": 1}
