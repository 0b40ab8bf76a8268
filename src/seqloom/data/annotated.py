"""Sentences with a tag for every word, one word on a line: CoNLL-U files, and files of columns.

A sentence becomes one example: its words between single blanks are the source, their tags the target, so that the
n-th tag answers the n-th word. A blank inside a word or tag becomes an open box, or there would be more words than
tags. A sentence that lost a line (not UTF-8, or without the promised form) is left out whole.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from seqloom.data.examples import Example
from seqloom.data.files import BadUtf8, Tally, decoded, raw_lines, resolved, shown
from seqloom.data.reader import FilePath, Reader, ReaderSettings
from seqloom.errors import SeqloomError

OPEN_BOX = "\u2423"  # a blank inside a word
NOTHING = "_"  # how CoNLL-U writes an empty column
MAX_WORDS = 100_000  # of one sentence: a file without blank lines must not fill the memory
MAX_COLUMN = 1_000
_BLANK = re.compile(r"\s")
_BLANKS_AND_TABS = re.compile(r"[ \t]+")  # not all white space: an ideographic space may be the word itself
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # 1-2: a multiword token, 1.1: an empty node
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

WordColumn = Annotated[int, Field(ge=0, le=MAX_COLUMN)]
TagColumn = Annotated[int, Field(ge=-1, le=MAX_COLUMN)]
Beginning = Annotated[str, Field(min_length=1)]


@dataclass
class _Sentence:
    """What was read since the last blank line."""

    first: int = 0  # the line of its first word
    columns: int = 0  # of that line
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    is_whole: bool = True


class SentenceReader(Reader):
    """One word on a line, blank lines between sentences; a format says what a line holds."""

    def __init__(
        self, settings: ReaderSettings, path: str, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally
    ) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.path = resolved(path, base)

    @abstractmethod
    def _word(self, text: str, where: str, sentence: _Sentence) -> tuple[str, str] | None:
        """Word and tag of a line; nothing where the line holds none. E_DATA where it has not the promised form."""

    def examples(self) -> Iterator[Example]:
        sentence = _Sentence()
        for line in raw_lines(self.path):
            text = decoded(line, self.path, self.on_bad_utf8, self.tally)
            if text is None:
                sentence.is_whole = False
            elif text.strip():
                self._take(sentence, text, line.number)
            else:
                yield from self._ended(sentence)
                sentence = _Sentence()
        yield from self._ended(sentence)

    def _take(self, sentence: _Sentence, text: str, number: int) -> None:
        try:
            found = self._word(text, f"{shown(self.path)}:{number}", sentence)
            if found is not None and len(sentence.words) == MAX_WORDS:
                raise self._too_long(sentence)
        except SeqloomError as error:
            was_whole, sentence.is_whole = sentence.is_whole, False
            if was_whole or len(sentence.words) < MAX_WORDS:  # too many words are one mistake, not one for each
                self.refuse(error)
            return
        if found is not None:
            sentence.first = sentence.first or number
            sentence.words.append(_one_word(found[0]))
            sentence.tags.append(_one_word(found[1]))

    def _too_long(self, sentence: _Sentence) -> SeqloomError:
        where = f"{shown(self.path)}:{sentence.first}"
        fix = "put a blank line between sentences"
        return SeqloomError("E_DATA", f"a sentence of more than {MAX_WORDS:,} words", where=where, fix=fix)

    def _ended(self, sentence: _Sentence) -> Iterator[Example]:
        if sentence.words and sentence.is_whole:
            source, target = " ".join(sentence.words), " ".join(sentence.tags)
            yield self._example(Example(source, (target,), shown(self.path), sentence.first))


def _one_word(cell: str) -> str:
    """The cell as one word whatever it holds: words and tags must stay as many as they were."""
    return _BLANK.sub(OPEN_BOX, cell) or NOTHING


class ConlluReader(SentenceReader):
    """CoNLL-U, the format of Universal Dependencies: words of a sentence and one column of what is said of them."""

    class Settings(ReaderSettings):
        kind: Literal["conllu"] = "conllu"
        path: FilePath
        form: Literal["form", "lemma"] = "form"  # the column that holds the words
        tag: Literal["upos", "xpos", "feats", "deprel", "lemma"] = "upos"  # the column to be learned

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, settings.path, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.form, self.tag = CONLLU_COLUMNS.index(settings.form), CONLLU_COLUMNS.index(settings.tag)

    def _word(self, text: str, where: str, sentence: _Sentence) -> tuple[str, str] | None:
        """Comments, multiword tokens (their words follow) and empty nodes (not in the text) are passed over."""
        if text.startswith("#"):
            return None
        cells = text.split("\t")
        if len(cells) != len(CONLLU_COLUMNS):
            what = f"{len(cells)} column(s), but a line of CoNLL-U has {len(CONLLU_COLUMNS)}"
            fix = "separate them by tabs, or read a file of words and tags with {kind: columns, path: ...}"
            raise SeqloomError("E_DATA", what, where=where, fix=fix)
        return None if _NO_WORD.fullmatch(cells[0]) else (cells[self.form], cells[self.tag])


class ColumnsReader(SentenceReader):
    """A word and its tag on every line, in two or more columns (CoNLL style)."""

    class Settings(ReaderSettings):
        kind: Literal["columns"] = "columns"
        path: FilePath
        word: WordColumn = 0  # counted from 0
        tag: TagColumn = 1  # counted from 0; -1: the last one
        separator: Literal["blank", "tab"] = "blank"  # blank: any number of blanks and tabs
        skip: tuple[Beginning, ...] = ("-DOCSTART-",)  # lines that begin so are passed over

        @model_validator(mode="after")
        def _two_columns(self) -> ColumnsReader.Settings:
            if self.word == self.tag:
                raise ValueError(f"word and tag are both column {self.tag}")
            return self

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, settings.path, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings
        self.needed = max(settings.word + (2 if settings.tag < 0 else 1), settings.tag + 1)

    def _word(self, text: str, where: str, sentence: _Sentence) -> tuple[str, str] | None:
        settings = self.settings
        if text.startswith(settings.skip):
            return None
        cells = text.split("\t") if settings.separator == "tab" else _BLANKS_AND_TABS.split(text.strip(" \t"))
        if len(cells) < self.needed:
            last = "the last column" if settings.tag < 0 else f"column {settings.tag}"
            what = (
                f"{len(cells)} column(s), but {self.needed} are needed: "
                f"the word is column {settings.word}, its tag {last} (counted from 0)"
            )
            fix = "give every word its tag, or set 'word', 'tag' and 'separator'"
            raise SeqloomError("E_DATA", what, where=where, fix=fix)
        sentence.columns = sentence.columns or len(cells)
        if len(cells) != sentence.columns:  # a blank inside a word, or a word without its tag
            what = f"{len(cells)} columns, but the sentence began with {sentence.columns}"
            fix = "give every word of a sentence as many; words with blanks in them need separator: tab"
            raise SeqloomError("E_DATA", what, where=where, fix=fix)
        return cells[settings.word], cells[settings.tag]
