"""Upstream files with markup: the XML of WebNLG and the .po files of translated documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from seqloom.errors import SeqloomError
from seqloom.files import read_bounded

MOST_BYTES = 200_000_000
SEEN = frozenset(
    [
        "Airport",
        "Astronaut",
        "Building",
        "City",
        "ComicsCharacter",
        "Food",
        "Monument",
        "SportsTeam",
        "University",
        "WrittenWork",
    ]
)  # the categories of train; the test set has others besides
HEADER = "category\tentry\tn_triples\ttriples\ttext"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "r": "\r"}


def webnlg(folder: Path) -> dict[str, Iterator[str]]:
    """Entries with triples and several texts (<lex>); of the test set those of the categories that train has."""
    return {
        "train.tsv.gz": _entries(folder / "train"),
        "dev.tsv.gz": _entries(folder / "dev"),
        "test_seen.tsv.gz": _entries(folder / "test", seen=True),
    }


def _entries(folder: Path, seen: bool = False) -> Iterator[str]:
    files = sorted(folder.rglob("*.xml"))
    if not files:
        fix = "give the folder with train, dev and test"
        raise SeqloomError("E_FILE", "no .xml files here", where=str(folder), fix=fix)
    yield HEADER
    for path in files:
        try:
            text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")  # in any other form it could hide what follows
        except UnicodeDecodeError as error:
            raise SeqloomError("E_DATA", f"not UTF-8 at byte {error.start}", where=str(path)) from None
        if "<!DOCTYPE" in text or "<!ENTITY" in text:  # a few bytes could stand for gigabytes
            raise SeqloomError("E_DATA", "XML with declarations of its own is not read", where=str(path))
        try:
            root = ElementTree.fromstring(text)  # nosec B314: there are no entities in it
        except ElementTree.ParseError as error:
            raise SeqloomError("E_DATA", f"not XML: {error}", where=str(path)) from None
        for entry in root.iter("entry"):
            category = entry.get("category", "")
            if seen and category not in SEEN:
                continue
            triples = [_plain(one.text) for one in entry.iter("mtriple")]
            for lex in entry.iter("lex"):
                said = lex.findtext("text") or lex.text
                cells = (category, entry.get("eid", ""), str(len(triples)), " ; ".join(triples), _plain(said))
                yield "\t".join(cells)


def translations(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(document, original, translation) of every .po file below a folder; fuzzy and missing ones are left out."""
    files = sorted(folder.rglob("*.po"))
    if not files:
        raise SeqloomError("E_FILE", "no .po files here", where=str(folder), fix="give the folder of translations")
    for path in files:
        document = path.relative_to(folder).as_posix()
        text = read_bounded(path, MOST_BYTES).decode("utf-8", "replace")
        for block in re.split(r"\n\s*\n", text):
            said = _block(block)
            if said is not None:
                yield (document, *said)


def _block(block: str) -> tuple[str, str] | None:
    """The two texts of one entry; nothing for headers, fuzzy entries, old ones and plurals."""
    texts: dict[str, str] = {}
    key = ""
    for line in block.splitlines():
        if line.startswith("#,") and "fuzzy" in line:
            return None
        if line.startswith("#"):
            continue
        word = line.split(" ", 1)[0]
        if word.startswith("msg"):
            key = word
        texts[key] = texts.get(key, "") + "".join(_unquoted(one) for one in _QUOTED.findall(line))
    source, target = _plain(texts.get("msgid")), _plain(texts.get("msgstr"))
    return (source, target) if source and target and source != target else None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())
