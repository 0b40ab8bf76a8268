"""FAULTS.md, table "Data", at the level of functions: the code, the exit code and the place that a person needs."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from seqloom.api.train import Wishes, train
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.files import Tally
from seqloom.data.readers import Example, dataset_settings, read, read_sources
from seqloom.data.report import examine
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError


def refused(raw: object, **options) -> SeqloomError:
    with pytest.raises(SeqloomError) as caught:
        list(read(dataset_settings(raw), **options))
    assert "\n" not in caught.value.line
    return caught.value


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("source", "target"), [(1000, 999), (0, 3), (5, 7)])
def test_parallel_files_of_different_length(source: int, target: int, pack, tmp_path: Path) -> None:
    (tmp_path / "a.de").write_bytes(pack(b"x\n" * source))
    (tmp_path / "a.en").write_bytes(pack(b"y\n" * target))
    error = refused({"source": str(tmp_path / "a.de"), "target": str(tmp_path / "a.en")})
    assert (error.code, error.exit_code) == ("E_ALIGN", 3)
    assert f"{tmp_path / 'a.de'} has {source:,} lines" in error.line
    assert f"{tmp_path / 'a.en'} has {target:,} lines" in error.line


def test_bad_utf8_names_line_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    lines = [b"ab\tcd\n"] * 56 + [b"ab\tc\xffd\n", b"e\tf\n"]
    path.write_bytes(b"".join(lines))
    error = refused(str(path))
    assert (error.code, error.exit_code) == ("E_UTF8", 3)
    assert f"{path}:57" in error.where
    assert f"byte offset {56 * 6 + 4:,}" in error.where
    path.write_bytes(b"\xef\xbb\xbfa\xff\tb\n")
    assert "byte offset 4" in refused(str(path)).where, "the byte order mark counts"


@pytest.mark.parametrize("kind", ["tsv", "parallel"])
def test_bad_utf8_skipped_or_replaced_is_counted(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"a\tb\nc\xff\td\ne\tf\n")
    (tmp_path / "s").write_bytes(b"a\nc\xff\ne\n")
    (tmp_path / "t").write_bytes(b"b\nd\nf\n")
    chosen = dataset_settings("x.tsv" if kind == "tsv" else {"source": "s", "target": "t"})
    tally = Tally()
    assert [one.target for one in read(chosen, on_bad_utf8="skip", base=tmp_path, tally=tally)] == ["b", "f"]
    assert tally == {"bad_utf8": 1}
    replaced = list(read(chosen, on_bad_utf8="replace", base=tmp_path, tally=tally))
    assert [one.source for one in replaced] == ["a", "c\ufffd", "e"]
    assert tally == {"bad_utf8": 2}
    assert [one.line for one in replaced] == [1, 2, 3]


def test_skipped_sources_keep_lines_in_lines_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\n\xff\nb\n")
    assert list(read_sources(str(tmp_path / "x"), on_bad_utf8="skip")) == ["a", "", "b"]


def test_utf16_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes("a\tb\n".encode("utf-16"))
    assert "UTF-16" in refused(str(tmp_path / "x.tsv")).what


def test_a_ten_megabyte_line_is_skipped_and_counted(tmp_path: Path) -> None:
    codec = TextCodec.train(TextCodec.Settings(tokenizer="characters"), lambda: ["ab"], seed=0)
    path = tmp_path / "x.tsv"
    with open(path, "wb") as out:
        out.write(b"a\tb\n" + b"a" * 10_000_000 + b"\tb\nb\ta\n")
    corpus, counts = Corpus.build(read(dataset_settings(str(path))), Codecs(codec, codec), tmp_path / "c", Limits())
    assert (len(corpus), counts.read, counts.long_source) == (2, 3, 1)
    assert [corpus.line(i) for i in range(2)] == [1, 3]


def test_a_line_over_the_cap_is_dropped_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.data.files.MAX_LINE_BYTES", 10)
    monkeypatch.setattr("seqloom.data.files.CHUNK", 4)
    (tmp_path / "x.tsv").write_bytes(b"a\tb\n" + b"x" * 50 + b"\tb\nc\td\n" + b"y" * 11)
    tally = Tally()
    found = list(read(dataset_settings(str(tmp_path / "x.tsv")), tally=tally))
    assert [(one.line, one.source) for one in found] == [(1, "a"), (3, "c")]
    assert tally == {"line_too_long": 2}
    with pytest.raises(SeqloomError) as caught:
        list(read_sources(str(tmp_path / "x.tsv")))
    assert (caught.value.code, caught.value.where) == ("E_DATA", f"{tmp_path / 'x.tsv'}:2")


def test_a_gzip_bomb_without_lines_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.data.files.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as out:
        for _ in range(200):
            out.write(b"\0" * (1 << 20))
    tally = Tally()
    tracemalloc.start()
    assert list(read(dataset_settings(str(path)), tally=tally)) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tally == {"line_too_long": 1}
    assert peak < 20 << 20


@pytest.mark.parametrize("content", ["", "\n\n", "a\t\n\tb\n", "  \t \n"])
def test_nothing_left_names_every_filter(content: str, tmp_path: Path) -> None:
    codec = TextCodec.train(TextCodec.Settings(tokenizer="words"), lambda: ["a b"], seed=0)
    examples = [
        Example(*line.split("\t")[:1], tuple(line.split("\t")[1:]) or ("",), "f", 1) for line in content.splitlines()
    ]
    with pytest.raises(SeqloomError) as caught:
        Corpus.build(examples, Codecs(codec, codec), tmp_path / "c", Limits())
    assert (caught.value.code, caught.value.exit_code) == ("E_EMPTY", 3)
    for name in ("empty_source", "empty_target", "long_source", "long_target", "ratio"):
        assert name in caught.value.what
    assert list(tmp_path.iterdir()) == [], "nothing half-written stays"


PACKED = gzip.compress(Random(0).randbytes(5000).hex().encode() + b"\tb\n", mtime=0)


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (PACKED[:3], 3),
        (PACKED[:1000], 1000),
        (PACKED[:-1], len(PACKED) - 1),
        (PACKED[:-6] + b"\0\0" + PACKED[-4:], None),  # a wrong checksum
        (PACKED[:100] + b"\xff" * 100 + PACKED[200:], None),
        (PACKED + b"trailing", len(PACKED)),
        (PACKED + PACKED[:50], len(PACKED) + 50),
    ],
    ids=["header", "middle", "last byte", "checksum", "garbled", "trailing", "second member"],
)
def test_a_broken_gzip_names_file_and_offset(content: bytes, offset: int | None, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(content)
    error = refused(str(path))
    assert (error.code, error.exit_code) == ("E_GZIP", 3)
    assert str(path) in error.where
    assert f"byte {offset:,}" in error.where if offset is not None else "byte" in error.where


def test_missing_columns(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\nno tab here\n")
    error = refused(str(tmp_path / "x.tsv"))
    assert (error.code, error.where) == ("E_DATA", f"{tmp_path / 'x.tsv'}:2")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("{", "E_DATA", "not valid JSON"),
        ("[1]", "E_DATA", "object"),
        ("", "E_DATA", "not valid JSON"),
        ('{"source": "a"}', "E_DATA", "'target'"),
        ('{"source": "a", "target": true}', "E_DATA", "string"),
        ('{"source": "a", "target": []}', "E_DATA", "string"),
        ('{"source": "a", "target": ["b", null]}', "E_DATA", "string"),
        ('{"source": ["a", "b"], "target": "c"}', "E_DATA", "one string"),
        ('{"source": "\\ud800", "target": "b"}', "E_UTF8", "surrogate"),
        ("[" * 200_000, "E_DATA", "deep"),
        ('{"source": ' + "9" * 10_000 + "}", "E_DATA", "JSON"),
    ],
)
def test_bad_json_names_its_line(line: str, code: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"source": "a", "target": "b"}) + "\n" + line + "\n")
    error = refused(str(path))
    assert (error.code, error.exit_code) == (code, 3)
    assert error.where.startswith(f"{path}:2")
    assert words in error.what


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in (".", "loop", "dangling", "missing", "missing/deep", "nul\0byte"):
        for raw in (str(tmp_path / name), {"source": str(tmp_path / name), "target": str(tmp_path / name)}):
            error = refused(raw)
            assert (error.code, error.exit_code) == ("E_FILE", 6)
            assert str(tmp_path / name) in error.where
    with pytest.raises(SeqloomError, match="E_FILE"):
        list(read_sources(str(tmp_path)))
    with pytest.raises(SeqloomError, match="E_FILE"):
        Vocabulary.load(tmp_path / "missing")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\tb\n")
    (tmp_path / "x").chmod(0)
    assert refused(str(tmp_path / "x")).code == "E_FILE"


def test_paths_with_spaces_and_unicode_work(tmp_path: Path) -> None:
    folder = tmp_path / "Daten für später"
    folder.mkdir()
    (folder / "ein paar 日本.tsv").write_text("a\tb\n")
    assert len(list(read(dataset_settings("ein paar 日本.tsv"), base=folder))) == 1


def test_a_leak_is_reported_with_both_lines() -> None:
    train = [Example(f"s{i}", (f"t{i}",), "train.tsv", i + 1) for i in range(100)]
    test = [Example("new", ("u",), "test.tsv", 1), Example("s41", ("t41",), "test.tsv", 2)]
    leaks = [finding for finding in examine(train, test=test).findings if finding.kind == "leaked_pairs"]
    assert [(leak.set, leak.count, leak.where) for leak in leaks] == [("test", 1, ("test.tsv:2 = train.tsv:42",))]


def test_a_corpus_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    codec = TextCodec.train(TextCodec.Settings(tokenizer="words"), lambda: ["a"], seed=0)
    with pytest.raises(SeqloomError) as caught:
        Corpus.build([Example("a", ("a",), "f", 1)], Codecs(codec, codec), tmp_path / "file" / "corpus", Limits())
    assert (caught.value.code, caught.value.exit_code) == ("E_FILE", 6)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = TextCodec.train(TextCodec.Settings(tokenizer="words"), lambda: ["a"], seed=0)
    real = open
    monkeypatch.setattr(
        "builtins.open", lambda path, mode="r", *a, **k: real("/dev/full" if "w" in mode else path, mode)
    )
    with pytest.raises(SeqloomError) as caught:
        Corpus.build([Example("a", ("a",), "f", 1)] * 5000, Codecs(codec, codec), tmp_path / "corpus", Limits())
    assert (caught.value.code, caught.value.exit_code) == ("E_DISK", 6)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("limits", "told"), [([], "max_ratio: 7 "), (["search.limits.max_length=30"], "and max_length: 80 ")]
)
def test_targets_longer_than_outputs_may_be_are_told(limits: list[str], told: str, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{'a' * (9 + i % 2)}\t{' '.join('b' * (5 if i % 4 else 80))}\n" for i in range(40)))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"data: {{train: {pairs}, dev: {pairs}}}\nsource: {{tokenizer: characters}}\ntarget: {{tokenizer: words}}\n"
        "training: {steps: 1}\nevaluation: {validate_examples: 0}\n"
    )
    lines: list[str] = []
    train(recipe, tmp_path / "run", limits, Wishes(tell=lines.append))
    cautions = [line for line in lines if line.startswith("caution")]
    assert len(cautions) == 1
    assert "25.0 % of the training targets" in cautions[0]
    assert told in cautions[0]
    enough: list[str] = []
    train(recipe, tmp_path / "more", ["search.limits.max_ratio=7"], Wishes(tell=enough.append))
    assert not [line for line in enough if line.startswith("caution")]
