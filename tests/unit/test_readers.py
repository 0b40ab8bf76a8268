"""Readers: every format, plain and gzipped, from files, pipes and stdin, gives the same examples."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from seqloom.data.readers import (
    READERS,
    Dataset,
    Example,
    PairSettings,
    dataset_settings,
    files_of,
    read,
    read_sources,
    spooled,
)
from seqloom.data.split import assign
from seqloom.errors import SeqloomError

PAIRED = [kind for kind in READERS if issubclass(READERS.settings_class(kind), PairSettings)]
PAIRS = [("a b", "x"), ("", "y z"), ("c\u2028d\x0b\x85e", " w "), ("ü", "ß")]


def write(path: Path, kind: str, pairs: list[tuple[str, str]] = PAIRS, end: str = "\n") -> object:
    """Write pairs in a format; the shorthand that reads them back."""

    def put(path: Path, lines: list[str]) -> str:
        data = "".join(line + end for line in lines).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return str(path)

    if kind == "parallel":
        source = put(path.with_name("s" + path.name), [source for source, _ in pairs])
        return {"source": source, "target": put(path.with_name("t" + path.name), [target for _, target in pairs])}
    if kind == "jsonl":
        return put(path, [json.dumps({"source": source, "target": target}) for source, target in pairs])
    return put(path, ["\t".join(pair) for pair in pairs])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", PAIRED)
def test_every_format_of_pairs_gives_the_same_examples(kind: str, suffix: str, end: str, tmp_path: Path) -> None:
    chosen = dataset_settings(write(tmp_path / f"data.{kind}{suffix}", kind, end=end))
    assert chosen.kind == kind
    examples = list(read(chosen))
    assert [(one.source, one.target) for one in examples] == PAIRS
    assert [one.line for one in examples] == [1, 2, 3, 4]
    assert examples[0].where == f"{files_of(chosen)[0]}:1"


@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t\ufeff"), max_size=8)))
@settings(max_examples=60, deadline=None)
def test_only_line_feeds_end_lines(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes("".join(line + "\n" for line in lines).encode())
        assert list(read_sources(str(path))) == lines


def test_chunk_borders_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.data.files.CHUNK", 3)
    expected = ["", "abcdefgh", "ü", "", "last\rwithout end"]
    data = "\r\nabcdefgh\nü\r\n\nlast\rwithout end".encode()
    for content in (data, gzip.compress(data), gzip.compress(data[:5]) + gzip.compress(data[5:]) + b"\0" * 7):
        (tmp_path / "x").write_bytes(content)
        assert list(read_sources(str(tmp_path / "x"))) == expected


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "packed.tsv").write_bytes(gzip.compress(b"a\tb\n"))
    (tmp_path / "plain.tsv.gz").write_bytes(b"a\tb\n")
    for name in ("packed.tsv", "plain.tsv.gz"):
        assert [one.target for one in read(dataset_settings(str(tmp_path / name)))] == ["b"]


def test_a_byte_order_mark_is_dropped_once(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"\xef\xbb\xbfa\tb\n\xef\xbb\xbfc\td\n")
    assert [one.source for one in read(dataset_settings(str(tmp_path / "x.tsv")))] == ["a", "\ufeffc"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stdin_is_a_tsv(pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(b"a\tb\n"))))
    assert list(read(dataset_settings("-"))) == [Example("a", ("b",), "<stdin>", 1)]


def test_pipes_are_read_and_spooled(tmp_path: Path) -> None:
    def pipe() -> str:
        reading, writing = os.pipe()
        threading.Thread(target=lambda: (os.write(writing, gzip.compress(b"a\tb\n")), os.close(writing))).start()
        return f"/dev/fd/{reading}"

    assert list(read_sources(pipe())) == ["a\tb"]
    kept = spooled(dataset_settings(pipe()), tmp_path / "spool")
    assert [[one.target for one in read(kept)] for _ in range(2)] == [["b"], ["b"]], "can be read again"
    (tmp_path / "x.tsv").write_text("a\tb\n")
    regular = spooled(dataset_settings("x.tsv"), tmp_path / "spool", base=tmp_path)
    assert files_of(regular) == [str(tmp_path / "x.tsv")], "regular files stay where they are"


def test_columns_and_references(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("1\tsource\ttarget\tother\tthird\n2\ts\tt\n3\ts\tt\t\tu\n")
    chosen = dataset_settings({"path": "x.tsv", "columns": [1, 2], "references": [3, 4]})
    found = [(one.source, one.references) for one in read(chosen, base=tmp_path)]
    assert found == [("source", ("target", "other", "third")), ("s", ("t",)), ("s", ("t", "u"))]


def test_several_reference_files(tmp_path: Path) -> None:
    for name, text in (("s", "a\nb\n"), ("t", "c\nd\n"), ("u", "e\nf\n")):
        (tmp_path / name).write_text(text)
    chosen = dataset_settings({"source": "s", "target": ["t", "u"]})
    assert [one.references for one in read(chosen, base=tmp_path)] == [("c", "e"), ("d", "f")]


def test_json_keys_and_references(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"q": "a", "answers": ["b", "c"], "more": 1}\n')
    chosen = dataset_settings({"path": "x.json", "source": "q", "target": "answers"})
    assert [one.references for one in read(chosen, base=tmp_path)] == [("b", "c")]


@pytest.mark.parametrize("raw", ["x.tsv", "x.txt.gz", "-", "x.jsonl", {"source": "a", "target": ["b", "c"]}])
def test_dataset_field_round_trip(raw: object) -> None:
    field = TypeAdapter(Dataset)
    chosen = field.validate_python(raw)
    assert field.validate_python(field.dump_python(chosen)) == chosen


@pytest.mark.parametrize("raw", [3, None, ["a"], {}, {"source": "a"}, {"path": ""}, {"kind": "csv", "path": "x"}])
def test_what_is_no_dataset_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        dataset_settings(raw)


def test_split_depends_on_the_source_alone() -> None:
    examples = [Example(f"word {i}", (f"t{i}",), "f", i) for i in range(4000)]
    parts = [assign(one, 7, dev=0.1, test=0.2) for one in examples]
    assert 0.17 < parts.count("test") / 4000 < 0.23
    assert 0.08 < parts.count("dev") / 4000 < 0.12
    moved = [Example(one.source.upper() + " ", ("other",), "g", 1) for one in examples]
    assert [assign(one, 7, 0.1, 0.2) for one in moved] == parts
    assert [assign(one, 8, 0.1, 0.2) for one in examples] != parts


def test_split_without_held_out_sets_keeps_all() -> None:
    assert assign(Example("a", ("b",), "f", 1), 1, 0.0, 0.0) == "train"


def test_stdin_on_both_sides_is_refused() -> None:
    with pytest.raises(SeqloomError) as caught:
        read(dataset_settings({"source": "-", "target": "-"}))
    assert caught.value.code == "E_USAGE"


# --- further sources, weights, alignments ------------------------------------------------------------------------

RICH = [
    Example("walk home", ("walked home",), "", 1, {"tags": "V;PST"}, 0.5, ((0, 0), (1, 1))),
    Example("go", ("went",), "", 2, {"tags": ""}, 2.0, None),
]


def rich(kind: str, folder: Path) -> object:
    """`RICH` in each format, with the settings that read it."""
    if kind == "tsv":
        (folder / "x.tsv").write_text("walk home\twalked home\t0-0 1-1\tV;PST\t0.5\ngo\twent\t\t\t2\n")
        return {"path": str(folder / "x.tsv"), "extras": {"tags": 3}, "weight": 4, "alignment": 2}
    if kind == "jsonl":
        records = [
            {"source": "walk home", "target": "walked home", "features": ["V", "PST"], "w": 0.5, "links": "0-0 1-1"},
            {"source": "go", "target": "went", "features": "", "w": "2", "links": " "},
        ]
        (folder / "x.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        keys = {"extras": {"tags": "features"}, "weight": "w", "alignment": "links"}
        return {"path": str(folder / "x.jsonl"), **keys}
    files = {
        "s": "walk home\ngo\n",
        "t": "walked home\nwent\n",
        "tags": "V;PST\n\n",
        "weights": "0.5\n2\n",
        "links": "0-0 1-1\n\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    place = {name: str(folder / name) for name in files}
    named = {"extras": {"tags": place["tags"]}, "weight": place["weights"], "alignment": place["links"]}
    return {"source": place["s"], "target": place["t"], **named}


@pytest.mark.parametrize("kind", PAIRED)
def test_every_format_of_pairs_reads_extras_weights_and_alignments(kind: str, tmp_path: Path) -> None:
    chosen = dataset_settings({**rich(kind, tmp_path), "constants": {"lang": "<2en>"}, "importance": 2.0})  # type: ignore[dict-item]
    assert (chosen.kind, chosen.extra_names) == (kind, ("tags", "lang"))
    found = list(read(chosen))
    for one, wanted in zip(found, RICH, strict=True):
        assert (one.source, one.references, one.links) == (wanted.source, wanted.references, wanted.links)
        assert one.extras == {**wanted.extras, "lang": "<2en>"}
        assert one.weight == 2 * wanted.weight
    assert found[0].inputs == {"source": "walk home", "tags": "V;PST", "lang": "<2en>"}
    assert TypeAdapter(Dataset).validate_python(TypeAdapter(Dataset).dump_python(chosen)) == chosen


def test_every_parallel_file_is_known_and_spooled(tmp_path: Path) -> None:
    chosen = dataset_settings(rich("parallel", tmp_path))
    assert sorted(Path(path).name for path in files_of(chosen)) == ["links", "s", "t", "tags", "weights"]
    reading, writing = os.pipe()
    os.write(writing, b"V;PST\n\n")
    os.close(writing)
    piped = chosen.with_(extras={"tags": f"/dev/fd/{reading}"})
    kept = spooled(piped, tmp_path / "spool")
    assert [one.extras["tags"] for _ in range(2) for one in read(kept)] == ["V;PST", ""] * 2
    (tmp_path / "tags").write_text("V;PST\n")
    with pytest.raises(SeqloomError) as caught:
        list(read(chosen))
    assert caught.value.code == "E_ALIGN"
    assert f"{tmp_path / 'tags'} has 1 lines" in caught.value.where


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("V;PST", "V;PST"),
        (["V", "PST"], "V;PST"),
        ({"tense": "past", "number": 2, "plural": True}, "number=2;plural=true;tense=past"),
        ([], ""),
        (7, "7"),
    ],
)
def test_json_lists_and_records_become_one_text(value: object, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"source": "a", "target": "b", "f": value}) + "\n")
    [example] = read(dataset_settings({"path": str(tmp_path / "x.jsonl"), "extras": {"tags": "f"}}))
    assert example.extras == {"tags": text}


TSV, JSON = {"path": "x.tsv"}, {"path": "x.jsonl"}


@pytest.mark.parametrize(
    ("raw", "line", "said"),
    [
        ({**TSV, "extras": {"tags": 2}}, "a\tb", "2 column(s), but columns 0, 1 and 2"),
        ({**TSV, "weight": 2}, "a\tb\tmuch", "weight 'much': a number from 0 up"),
        ({**TSV, "weight": 2}, "a\tb\t-1", "weight '-1'"),
        ({**TSV, "weight": 2}, "a\tb\tnan", "weight 'nan'"),
        ({**TSV, "weight": 2}, "a\tb\t", "weight ''"),
        ({**TSV, "alignment": 2}, "a\tb\t0:0", "alignment '0:0'"),
        ({**TSV, "alignment": 2}, "a\tb c\t0-0 1-1", "alignment 1-1: the source has 1 word(s), the target 2"),
        ({**JSON, "extras": {"tags": "f"}}, '{"source": "a", "target": "b"}', "no key 'f'"),
        ({**JSON, "extras": {"tags": "f"}}, '{"source": "a", "target": "b", "f": [["x"]]}', "it holds list"),
        ({**JSON, "extras": {"tags": "f"}}, '{"source": "a", "target": "b", "f": null}', "it holds NoneType"),
        ({**JSON, "extras": {"tags": "f"}}, '{"source": "a", "target": "b", "f": ["x;y"]}', "which separates items"),
        ({**JSON, "extras": {"tags": "f"}}, '{"source": "a", "target": "b", "f": "\\ud800"}', "half a surrogate"),
        ({**JSON, "weight": "w"}, '{"source": "a", "target": "b", "w": true}', "weight True"),
        ({**JSON, "alignment": "l"}, '{"source": "a", "target": "b", "l": ["0-0", "0-0"]}', "'l' must be one string"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(raw: dict[str, object], line: str, said: str, tmp_path: Path) -> None:
    good = {"x.tsv": "a\tb\t1\n", "x.jsonl": '{"source": "a", "target": "b", "f": "x", "w": 1, "l": "0-0"}\n'}
    path = tmp_path / str(raw["path"])
    first = "a\tb\t0-0\n" if raw.get("alignment") == 2 else good[path.name]
    path.write_text(first + line + "\n")
    with pytest.raises(SeqloomError) as caught:
        list(read(dataset_settings(raw), base=tmp_path))
    assert said in caught.value.what
    assert caught.value.where.startswith(f"{path}:2")


@pytest.mark.parametrize(
    "raw",
    [
        {"path": "x", "extras": {"source": 2}},
        {"path": "x", "extras": {"Tags": 2}},
        {"path": "x", "extras": {"tags": -1}},
        {"path": "x", "extras": {"tags": 2}, "constants": {"tags": "x"}},
        {"path": "x", "importance": -1},
        {"path": "x", "share": 0},
        {"path": "x.jsonl", "extras": {"tags": 2}},
    ],
)
def test_settings_of_extras_that_cannot_be_are_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        dataset_settings(raw)


def test_split_depends_on_source_and_extras() -> None:
    def parts(*extras: dict[str, str]) -> list[list[str]]:
        return [[assign(Example(f"word {i}", ("t",), "f", i, one), 7, 0.1, 0.2) for i in range(500)] for one in extras]

    plain, tagged, same, other = parts({}, {"a": "x", "b": "y"}, {"b": "Y ", "a": "x"}, {"a": "y", "b": "x"})
    assert tagged == same, "in whatever order, case and spacing"
    assert plain != tagged != other
