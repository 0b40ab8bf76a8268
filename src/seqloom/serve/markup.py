"""HTML whose texts are translated and whose tags stay as they are.

A text is what stands between two tags: a sentence with a word in bold is translated in three parts, for nobody knows
where the tag belongs in the other language. Scripts, styles and what is marked `translate="no"` are left alone. What a
model says becomes text, never markup.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from html.parser import HTMLParser

LEFT_ALONE = ("script", "style", "code", "textarea", "template")
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")


class Markup(HTMLParser):
    """One document, or a part of one; ValueError for what no parser can read."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []  # those to be translated, without the white space around them
        self._parts: list[str | int] = []  # what stays, or the number of a text
        self._closed: list[str] = []  # tags around what is left alone
        try:
            self.feed(text)
            self.close()
        except AssertionError as error:  # the parser's word for what it cannot read, `<![x`
            raise ValueError(str(error)) from None

    def filled(self, texts: Sequence[str]) -> str:
        """The same document with these in the places of its texts."""
        said = [html.escape(text, quote=False) for text in texts]
        return "".join(part if isinstance(part, str) else said[part] for part in self._parts)

    # --- what the parser finds ---------------------------------------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._parts.append(self.get_starttag_text() or "")
        if tag not in VOID and (self._closed or tag in LEFT_ALONE or ("translate", "no") in attrs):
            self._closed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self._parts.append(f"</{tag}>")
        if tag in self._closed:
            while self._closed.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        text = data.strip()
        if not text or self._closed:
            raw = self._closed[-1:] in (["script"], ["style"])  # whose contents are not escaped
            self._parts.append(data if raw else html.escape(data, quote=False))
            return
        start = data.index(text)
        self._parts += [data[:start], len(self.texts), data[start + len(text) :]]
        self.texts.append(text)

    def handle_comment(self, data: str) -> None:
        self._parts.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._parts.append(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._parts.append(f"<![{data}]]>" if "[" in data else f"<![{data}]>")  # <![CDATA[x]]>, or <![if x]>

    def handle_pi(self, data: str) -> None:
        self._parts.append(f"<?{data}>")
