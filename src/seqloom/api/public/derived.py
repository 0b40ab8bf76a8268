"""Sets that are made of other public sets: questions about the texts of WebNLG, and E2E with placeholders for names.

Both take the lines of the other set as recipes read them, and nothing is drawn by chance: the same lines give the same.
The facts of WebNLG's test set are mostly those of its training set, told anew, so that answers could be remembered
instead of read. A hash of the question therefore decides in which part it may be asked: none of test or dev is asked in
training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from seqloom.api.public.split import share_of
from seqloom.errors import SeqloomError

Lines = Iterator[str]
PLACEHOLDERS = {"name": "X_name", "near": "X_near"}  # slots of E2E whose values are open
DELEXICALISED = "mr\tref\tname\tnear"
_SLOT = re.compile(r"\b(name|near)\[([^\]]*)\]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ASKS_AT_THE_END = re.compile(r"(is|was|has|have)\b.*|.*\b(of|in|on|by|to|at|from|for)")
_BRACKETS = re.compile(r"\s*\([^)]*\)$")


def questions(parts: Mapping[str, Lines]) -> dict[str, Lines]:
    """Text, answer, question, predicate: a line for every triple of a text whose object stands in it."""
    names = {"train.tsv.gz": "train", "dev.tsv.gz": "dev", "test_seen.tsv.gz": "test"}
    return {f"questions_{ours}.tsv.gz": _asked(theirs, parts[theirs], ours) for theirs, ours in names.items()}


def part_of(asked: str) -> str:
    """Where a question may be asked: two of ten in test, one in dev, the others in train."""
    share = share_of(asked)
    return "test" if share < 0.2 else "dev" if share < 0.3 else "train"


def _asked(file: str, lines: Lines, part: str) -> Lines:
    next(lines, None)  # it names the columns
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != 5:
            what = f"{len(cells)} columns where 5 are expected"
            raise SeqloomError("E_DATA", what, where=f"{file}:{number}", fix="is this a file of webnlg2017?")
        text = cells[4]
        triples = [tuple(triple.split(" | ")) for triple in cells[3].split(" ; ")]
        known = [triple for triple in triples if len(triple) == 3]
        times = Counter(triple[:2] for triple in known)
        for subject, predicate, thing in known:
            answer, asked = answer_in(text, thing), question(subject, predicate)
            if answer and times[subject, predicate] == 1 and part_of(asked) == part:  # of several objects none is right
                yield "\t".join((text, answer, asked, predicate))


def question(subject: str, predicate: str) -> str:
    """`Old_Mill`, `floorCount` -> "what is the floor count of Old Mill ?"."""
    asked = _HUMP.sub(" ", predicate.replace("_", " ").replace("(", "").replace(")", ""))
    words = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in asked.split())
    whom = _plain(subject)
    if _ASKS_AT_THE_END.fullmatch(words):
        return f"{whom} {words} what ?"
    return f"what is the {words} of {whom} ?"


def answer_in(text: str, thing: str) -> str:
    """An object as the text writes it, as whole words; nothing where it writes it otherwise."""
    plain = _plain(thing)
    for form in (plain, _BRACKETS.sub("", plain), plain.removesuffix(".0")):
        found = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text, re.IGNORECASE) if form else None
        if found is not None:
            return found.group()
    return ""


def _plain(name: str) -> str:
    """`"Aarhus,_Denmark"` -> `Aarhus, Denmark`."""
    return " ".join(name.strip().strip('"').replace("_", " ").split())


def delexicalised(parts: Mapping[str, Lines]) -> dict[str, Lines]:
    """Record and sentence with placeholders, and what they stand for: filled in again, the line is what it was."""
    return {f"delexicalised_{name}": _opened(lines) for name, lines in parts.items()}


def _opened(lines: Lines) -> Lines:
    next(lines, None)  # it names the columns
    yield DELEXICALISED
    for line in lines:
        record, _, sentence = line.partition("\t")
        values = dict(_SLOT.findall(record))
        record = _SLOT.sub(lambda slot: f"{slot[1]}[{PLACEHOLDERS[slot[1]]}]", record)
        for slot in sorted(values, key=lambda slot: -len(values[slot])):  # the longer first: one may hold the other
            if values[slot]:
                whole = rf"(?<!\w){re.escape(values[slot])}(?!\w)"
                sentence = re.sub(whole, PLACEHOLDERS[slot], sentence)
        yield "\t".join((record, sentence, *(values.get(slot, "") for slot in PLACEHOLDERS)))


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders filled in: what `delexicalised` took out."""
    for slot, placeholder in PLACEHOLDERS.items():
        text = text.replace(placeholder, values.get(slot, ""))
    return text
