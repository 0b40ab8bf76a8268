"""Upstream files of public sets, as their authors publish them, to the lines of the files that recipes read.

Each reader takes the folder with the upstream files and gives, by name, the lines of every file it makes; nothing is
written here. A tab or a line break inside a text becomes a blank: it would otherwise be a column or a line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from seqloom.api.public import derived, marked, split
from seqloom.data.files import Tally, decoded, raw_lines
from seqloom.errors import SeqloomError
from seqloom.files import read_bounded

Lines = Iterator[str]
Made = dict[str, Lines]
Reading = Callable[[Path], Made]
PARTS = ("train", "dev", "test")
MOST_BYTES = 500_000_000  # of a file that is read whole


def lines_of(path: Path) -> Lines:
    """The lines of a file, gzipped or not; E_FILE and E_UTF8 as everywhere."""
    for line in raw_lines(str(path)):
        text = decoded(line, str(path), "error", Tally())
        if text is not None:
            yield text


def found(folder: Path, *names: str) -> Path:
    """The first of these files that is there, gzipped or not; E_FILE names the first where none is."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise SeqloomError("E_FILE", f"no {names[0]} here", where=str(folder), fix="give the folder of the upstream files")


def tsv(*cells: str) -> str:
    return "\t".join(" ".join(cell.split()) for cell in cells)


def multi30k(folder: Path) -> Made:
    names = {"train": "train", "val": "val", "test2016": "test_2016_flickr", "test2017": "test_2017_flickr"}
    return {
        f"{ours}.{language}.gz": lines_of(found(folder, f"{theirs}.{language}", f"{ours}.{language}"))
        for ours, theirs in names.items()
        for language in ("en", "de", "fr")
    }


def enja(folder: Path) -> Made:
    return {f"{part}.{side}.gz": lines_of(found(folder, f"{part}.{side}")) for part in PARTS for side in ("en", "ja")}


def scan(folder: Path) -> Made:
    """`IN: jump twice OUT: I_JUMP I_JUMP` on every line."""

    def pairs(path: Path) -> Lines:
        for number, line in enumerate(lines_of(path), start=1):
            command, out, actions = line.removeprefix("IN:").partition("OUT:")
            if not out:
                what = "a line without 'OUT:'"
                raise SeqloomError("E_DATA", what, where=f"{path}:{number}", fix="is this a file of SCAN?")
            yield tsv(command, actions)

    splits = {"simple": "simple_split", "length": "length_split", "addprim_jump": "add_prim_split"}
    return {
        f"{ours}_{part}.tsv.gz": pairs(found(folder, f"{inner}/tasks_{part}_{ours}.txt", f"tasks_{part}_{ours}.txt"))
        for ours, inner in splits.items()
        for part in ("train", "test")
    }


def django(folder: Path) -> Made:
    """Line i of all.anno describes line i of all.code; the parts are the first 16,000, the next 1,000 and the rest."""
    said, code = (list(lines_of(found(folder, f"all.{end}", f"django/all.{end}"))) for end in ("anno", "code"))
    if len(said) != len(code):
        what = f"all.anno has {len(said):,} lines, all.code {len(code):,}"
        raise SeqloomError("E_ALIGN", what, where=str(folder), fix="take both from the same release")
    pairs = [tsv(one, other) for one, other in zip(said, code, strict=True)]
    ends = {"train": pairs[:16_000], "dev": pairs[16_000:17_000], "test": pairs[17_000:]}
    return {f"{part}.tsv.gz": iter(lines) for part, lines in ends.items()}


def e2e(folder: Path) -> Made:
    """CSV with the columns mr and ref."""
    names = {"train": ("trainset.csv",), "dev": ("devset.csv",), "test": ("testset_w_refs.csv", "testset.csv")}

    def rows(path: Path) -> Lines:
        text = "\n".join(lines_of(path))
        reader = csv.DictReader(io.StringIO(text))
        if reader.fieldnames is None or not {"mr", "ref"} <= set(reader.fieldnames):
            raise SeqloomError("E_DATA", "no columns mr and ref", where=str(path), fix="is this a file of E2E?")
        yield tsv("mr", "ref")
        yield from (tsv(row["mr"] or "", row["ref"] or "") for row in reader)

    return {f"{part}.tsv.gz": rows(found(folder, *theirs)) for part, theirs in names.items()}


def advising(folder: Path) -> Made:
    """advising.json: queries, each with its SQL and the questions that ask for it, variables still to be filled in; or
    advising.tsv, the same as one table with its split in the first column."""
    if any((folder / name).is_file() for name in ("advising.tsv", "advising.tsv.gz")):
        return _advising_table(found(folder, "advising.tsv"))
    path = found(folder, "advising.json", "data/advising.json")
    try:
        queries = json.loads(read_bounded(path, MOST_BYTES))
        lines: dict[str, list[str]] = {part: [] for part in PARTS}
        for query in queries:
            for sentence in query["sentences"]:
                part = sentence["question-split"]
                if part in lines:
                    filled = [_filled(text, sentence["variables"]) for text in (sentence["text"], query["sql"][0])]
                    lines[part].append(tsv(*filled))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        what = f"not the JSON of text2sql-data: {type(error).__name__} {error}"
        raise SeqloomError("E_DATA", what, where=str(path), fix="is this its version 4?") from None
    return {f"{part}.tsv.gz": iter(found_lines) for part, found_lines in lines.items()}


def _advising_table(path: Path) -> Made:
    rows = [line.split("\t") for line in lines_of(path)]
    return {f"{part}.tsv.gz": iter([tsv(*row[2:4]) for row in rows if row[0] == part]) for part in PARTS}


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):  # `number10` before `number1`
        text = text.replace(name, values[name])
    return text


def aeslc(folder: Path) -> Made:
    """A file per mail: the body, then @subject and, in dev and test, @ann0 to @ann2, each with its line."""
    inner = folder / "enron_subject_line" if (folder / "enron_subject_line").is_dir() else folder

    def mails(part: str) -> Lines:
        keys = ["subject"] if part == "train" else ["subject", "ann0", "ann1", "ann2"]
        yield tsv("body", *keys)
        for path in _files(inner / part, "*.subject"):
            body, told = _sections("\n".join(lines_of(path)))
            yield tsv(" ".join(body.split()[:200]), *(told.get(key, "") for key in keys))

    return {f"{part}.tsv.gz": mails(part) for part in PARTS}


def _sections(text: str) -> tuple[str, dict[str, str]]:
    first, *rest = text.split("\n@")
    parts = (one.partition("\n") for one in rest)
    return first, {name.strip(): value for name, _, value in parts}


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.rglob(pattern))
    if not files:
        fix = "give the folder of the upstream files"
        raise SeqloomError("E_FILE", f"no {pattern} here", where=str(folder), fix=fix)
    return files


def scitldr(folder: Path) -> Made:
    """A JSON object a line: paper_id, title, source (sentences) and target (summaries)."""

    def papers(path: Path) -> Lines:
        yield tsv("paper_id", "title", "abstract", "tldrs")
        for number, line in enumerate(lines_of(path), start=1):
            try:
                one = json.loads(line)
                yield tsv(one["paper_id"], one.get("title", ""), " ".join(one["source"]), " ||| ".join(one["target"]))
            except (ValueError, KeyError, TypeError) as error:
                what = f"not a paper of SciTLDR: {type(error).__name__} {error}"
                raise SeqloomError("E_DATA", what, where=f"{path}:{number}") from None

    return {f"{part}.tsv.gz": papers(found(folder, f"{part}.jsonl")) for part in ("train", "dev")}


def dailydialog(folder: Path) -> Made:
    """Utterances, acts and emotions in three files, a dialogue a line; one whose counts differ is left out."""

    def dialogues(part: str) -> Lines:
        sides = [
            lines_of(found(folder, f"dialogues_{kind}{part}.txt", f"{part}/dialogues_{kind}{part}.txt"))
            for kind in ("", "act_", "emotion_")
        ]
        for said, acts, emotions in zip(*sides, strict=True):
            utterances = [" ".join(one.split()) for one in said.split("__eou__")]
            utterances = [one for one in utterances if one]
            if len(utterances) == len(acts.split()) == len(emotions.split()):
                yield "\t".join((" __eou__ ".join(utterances), " ".join(acts.split()), " ".join(emotions.split())))

    return {"train.tsv.gz": dialogues("train"), "dev.tsv.gz": dialogues("validation")}


def labelled(names: Mapping[str, str]) -> Reading:
    """Files of `label text` lines: label, tab, text."""

    def read(folder: Path) -> Made:
        return {
            ours: (tsv(*line.split(" ", 1)) for line in lines_of(found(folder, theirs)) if line.strip())
            for ours, theirs in names.items()
        }

    return read


def trec(folder: Path) -> Made:
    """`NUM:dist How far is it ?`: coarse kind, fine kind, question."""

    def questions(path: Path) -> Lines:
        for line in lines_of(path):
            kind, _, question = line.partition(" ")
            yield tsv(kind.partition(":")[0], kind, question)

    return {f"{part}.tsv": questions(found(folder, f"TREC.{part}")) for part in ("train", "test")}


def renamed(names: Mapping[str, Sequence[str]]) -> Reading:
    """Files whose lines are as a recipe reads them, under other names."""

    def read(folder: Path) -> Made:
        return {ours: lines_of(found(folder, *theirs)) for ours, theirs in names.items()}

    return read


def made_of(reading: Reading, *names: str) -> Reading:
    """The files of another set: as they were laid out, or of its upstream files."""

    def read(folder: Path) -> Made:
        if all((folder / name).is_file() for name in names):
            return {name: lines_of(folder / name) for name in names}
        return reading(folder)

    return read


READINGS: dict[str, Reading] = {
    "multi30k": multi30k,
    "tatoeba-deu-eng": lambda folder: split.tatoeba(lines_of(found(folder, "deu.txt"))),
    "enja-50k": enja,
    "pydocs-en-fr": lambda folder: split.documents(marked.translations(folder)),
    "sigmorphon2021-g2p": renamed(
        {
            f"{size}/{language}_{part}.tsv.gz": (f"{size}/{language}_{part}.tsv", f"data/{size}/{language}_{part}.tsv")
            for size, languages in {
                "high": ("eng_us",),
                "medium": ("fre", "dut", "kor", "jpn_hira"),
                "low": ("ice", "ita", "ady"),
            }.items()
            for language in languages
            for part in PARTS
        }
    ),
    "conll2018-inflection": renamed(
        {
            f"{language}_{part}.tsv.gz": (f"{language}-{part}", f"task1/all/{language}-{part}")
            for language in ("english", "german", "finnish", "turkish", "spanish")
            for part in ("train-high", "dev", "test")
        }
    ),
    "translit-ar-en": renamed(
        {f"{ours}.tsv": (f"ar2en-{theirs}.txt",) for ours, theirs in zip(PARTS, ("train", "eval", "test"), strict=True)}
    ),
    "scan": scan,
    "text2sql-advising": advising,
    "django-code": django,
    "e2e-nlg": e2e,
    "e2e-nlg-delexicalised": lambda folder: derived.delexicalised(
        made_of(e2e, *(f"{part}.tsv.gz" for part in PARTS))(folder)
    ),
    "webnlg2017": marked.webnlg,
    "webnlg2017-questions": lambda folder: derived.questions(
        made_of(marked.webnlg, *(f"{part}.tsv.gz" for part in ("train", "dev", "test_seen")))(folder)
    ),
    "aeslc": aeslc,
    "scitldr": scitldr,
    "dailydialog": dailydialog,
    "sst2": labelled({f"{part}.tsv.gz": f"stsa.binary.{part}" for part in PARTS}),
    "trec": trec,
    "sick": renamed(
        {
            "train.tsv.gz": ("SICK_train.txt",),
            "trial.tsv.gz": ("SICK_trial.txt",),
            "test.tsv.gz": ("SICK_test_annotated.txt",),
        }
    ),
}
