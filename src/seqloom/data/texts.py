"""Plain text for language models: nothing goes in, the text comes out.

A text is a line or a document (what stands between blank lines); or all of a file is one text, which comes line by line
and is read in windows that go on where the last one ended (`batching.window`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from seqloom.data.examples import Example
from seqloom.data.files import BadUtf8, Tally, resolved, shown
from seqloom.data.reader import FilePath, Reader, ReaderSettings
from seqloom.errors import SeqloomError

MAX_TEXT_BYTES = 256 << 20  # one document, which is held in memory


class TextReader(Reader):
    """Text as it is, without a source: what a language model learns from."""

    class Settings(ReaderSettings):
        kind: Literal["text"] = "text"
        path: FilePath
        # What a text is: a line, what stands between blank lines, or all of it. Then lines keep their breaks.
        unit: Literal["lines", "documents", "stream"] = "lines"
        echo: bool = False  # a text is its own source as well, to be restored from noise

        @property
        def flows(self) -> bool:
            return self.unit == "stream"

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.path, self.echo = resolved(settings.path, base), settings.echo
        self.parts = {"lines": self._lines, "documents": self._documents, "stream": self._stream}[settings.unit]

    def examples(self) -> Iterator[Example]:
        for number, text in self.parts():
            yield self._example(Example(text if self.echo else "", (text,), shown(self.path), number))

    def _lines(self) -> Iterator[tuple[int, str]]:
        return ((number, text) for number, text in self._texts(self.path) if text.strip())

    def _documents(self) -> Iterator[tuple[int, str]]:
        """Lines between blank lines, with their line breaks; a line that is skipped is missing in its document."""
        first, size = 0, 0
        lines: list[str] = []
        for number, text in self._texts(self.path):
            if not text.strip():
                yield from self._document(first, lines, size)
                first, size, lines = 0, 0, []
                continue
            first, size = first or number, size + len(text.encode()) + 1
            if size <= MAX_TEXT_BYTES + 1:  # the last line break is no part of it
                lines.append(text)
            else:
                lines.clear()
        yield from self._document(first, lines, size)

    def _document(self, first: int, lines: list[str], size: int) -> Iterator[tuple[int, str]]:
        if size > MAX_TEXT_BYTES + 1:
            self.refuse(self._too_long("a document", f"{shown(self.path)}:{first}"))
        elif lines:
            yield first, "\n".join(lines)

    def _stream(self) -> Iterator[tuple[int, str]]:
        """All of the file in order, line breaks kept: each line with its own, and with the blank lines before it."""
        before = ""
        for number, text in self._texts(self.path):
            before += text + "\n"
            if text.strip():
                yield number, before
                before = ""

    def _too_long(self, what: str, where: str) -> SeqloomError:
        fix = "split it, or set unit: lines"
        return SeqloomError("E_DATA", f"{what} of more than {MAX_TEXT_BYTES:,} bytes", where=where, fix=fix)
