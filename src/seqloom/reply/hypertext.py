"""HTML to the text that a person would see: lines where blocks begin, `> ` before what is quoted, nothing hidden.

The markup is never trusted, only read: tags that are not closed, nested without end or cut in half give some text, in
time that grows with the size alone. Nothing is fetched, and no attribute becomes text.
"""

from __future__ import annotations

from html.parser import HTMLParser

MOST = 1_000_000  # characters of markup that are looked at; what follows is left out
PIECE = 4_096  # characters that are parsed at a time: the parser's work on broken tags grows with the square of this
MOST_TAGS = 50_000
PENDING = 65_536  # characters that a single tag or comment may have; a longer one ends the reading

_LINED = """
    address article aside blockquote br center dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li
    main nav ol p pre section table td th tr ul
"""
_UNSEEN = "head title style script template noscript svg math object iframe select textarea"
_EMPTY = "area base br col embed hr img input link meta param source track wbr"
_BLOCKS, _HIDDEN, _VOID = (frozenset(names.split()) for names in (_LINED, _UNSEEN, _EMPTY))
_QUOTES = ("gmail_quote", "yahoo_quoted", "moz-cite", "protonmail_quote", "divrplyfwdmsg", "appendonsend")
_HIDING = ("display:none", "visibility:hidden", "mso-hide:all")


class _Reader(HTMLParser):
    """Collects text; counts what it is inside of, so that an end tag without its start harms nothing."""

    def __init__(self, most: int) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = [""]
        self.left = most
        self.tags = 0
        self._hidden: tuple[str, int] | None = None  # the tag that hides, and how many of its name are open
        self._quoted: list[tuple[str, int]] = []  # tags that quote, each with how many of its name are open inside

    @property
    def pending(self) -> int:
        return len(self.rawdata)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        if tag in _BLOCKS:
            self._break()
        if tag in _VOID:
            return
        if self._hidden is not None:
            name, count = self._hidden
            self._hidden = (name, count + (tag == name))
        elif tag in _HIDDEN or _says(attrs, ("style",), _HIDING) or any(name == "hidden" for name, _ in attrs):
            self._hidden = (tag, 1)
        elif self._quoted and self._quoted[-1][0] == tag:
            self._quoted[-1] = (tag, self._quoted[-1][1] + 1)
        elif not self._quoted and (tag == "blockquote" or _says(attrs, ("class", "id"), _QUOTES)):
            self._quoted.append((tag, 1))

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._break()
        if self._hidden is not None:
            name, count = self._hidden
            if tag == name:
                self._hidden = (name, count - 1) if count > 1 else None
        elif self._quoted and self._quoted[-1][0] == tag:
            name, count = self._quoted.pop()
            if count > 1:
                self._quoted.append((name, count - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._break()

    def handle_data(self, data: str) -> None:
        if self._hidden is not None or self.left <= 0:
            return
        words = " ".join(data[: self.left].split())
        if not words:
            if self.lines[-1]:
                self.lines[-1] += " "
            return
        before = " " if data[0].isspace() and self.lines[-1] else ""
        after = " " if data[-1].isspace() else ""
        if self._quoted and not self.lines[-1]:
            before = "> "
        self.lines[-1] += before + words + after
        self.left -= len(words) + 1

    def _break(self) -> None:
        if self.lines[-1].strip():
            self.lines.append("")


def _says(attrs: list[tuple[str, str | None]], names: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Does one of these attributes hold one of these words, however it is spaced?"""
    values = ("".join((value or "")[:1000].lower().split()) for name, value in attrs if name in names)
    return any(word in value for value in values for word in words)


def text_of(markup: str, most: int) -> str:
    """The visible text of HTML, at most `most` characters of it."""
    reader = _Reader(most)
    for start in range(0, min(len(markup), MOST), PIECE):
        reader.feed(markup[start : start + PIECE])
        if reader.left <= 0 or reader.tags > MOST_TAGS or reader.pending > PENDING:
            break
    else:
        if len(markup) <= MOST:  # otherwise the tag in which it was cut would be read as text
            reader.close()
    lines = (" ".join(line.split()) for line in reader.lines)
    return "\n".join(line for line in lines if line)
