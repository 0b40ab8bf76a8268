"""Plain text for language models: nothing goes in, the text comes out.

A text is a line, a document (what stands between blank lines) or a whole file. Texts keep their characters as they are;
only the byte order mark at the beginning of a file is no text.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from seqloom.data.examples import Example
from seqloom.data.files import BadUtf8, RawLine, Tally, chunks, decoded, resolved, shown
from seqloom.data.reader import FilePath, Reader, ReaderSettings
from seqloom.errors import SeqloomError

MAX_TEXT_BYTES = 256 << 20  # one document or file, which is held in memory


class TextReader(Reader):
    """Text as it is, without a source: what a language model learns from."""

    class Settings(ReaderSettings):
        kind: Literal["text"] = "text"
        path: FilePath
        unit: Literal["lines", "documents", "file"] = "lines"  # what one example is; documents: between blank lines

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.path = resolved(settings.path, base)
        self.parts = {"lines": self._lines, "documents": self._documents, "file": self._file}[settings.unit]

    def examples(self) -> Iterator[Example]:
        for number, text in self.parts():
            yield self._example(Example("", (text,), shown(self.path), number))

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

    def _file(self) -> Iterator[tuple[int, str]]:
        """The whole file, line ends as they are; nothing where it is blank."""
        parts: list[bytes] = []
        size = 0
        for chunk in chunks(self.path):
            size += len(chunk)
            if size > MAX_TEXT_BYTES:
                self.refuse(self._too_long("a file", shown(self.path)))
                return
            parts.append(chunk)
        text = self._decoded(b"".join(parts).removeprefix(codecs.BOM_UTF8), size)
        if text.strip():
            yield 1, text

    def _decoded(self, data: bytes, size: int) -> str:
        """All of it at once; only where that fails line by line, so that bad lines are named, skipped or mended."""
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        texts, offset = [], size - len(data)
        for number, line in enumerate(io.BytesIO(data), start=1):  # only "\n" ends these
            texts.append(decoded(RawLine(number, offset, line), self.path, self.on_bad_utf8, self.tally) or "")
            offset += len(line)
        return "".join(texts)

    def _too_long(self, what: str, where: str) -> SeqloomError:
        fix = "split it, or set unit: lines"
        return SeqloomError("E_DATA", f"{what} of more than {MAX_TEXT_BYTES:,} bytes", where=where, fix=fix)
