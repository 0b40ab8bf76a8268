"""HTML keeps its tags, its texts are others, and what a model says is never markup."""

from __future__ import annotations

import pytest

from seqloom.serve.markup import Markup

KEPT = [
    "<p>one</p>",
    "<!doctype html><html><body class='x y'>one <b>two</b>\n</body></html>",
    "one &amp; two &lt; three",
    "<!-- a note --><br/><img src=x alt='y'>",
    "<script>if (a < b && c) { d(); }</script><style>a > b { }</style>one",
    "<![CDATA[ one ]]><![if IE]>one<![endif]>",
    "<p>not closed <b>at all",
    "plain",
    "",
]


@pytest.mark.parametrize("text", KEPT)
def test_with_its_own_texts_a_document_is_itself(text: str) -> None:
    found = Markup(text)
    assert found.filled(found.texts) == text


def test_texts_are_what_stands_between_tags() -> None:
    found = Markup("<p> one &amp; two <b>three</b></p><script>four</script><p translate=no>five <i>six</i></p>seven")
    assert found.texts == ["one & two", "three", "seven"]
    said = found.filled(["1", "2", "3"])
    assert said == "<p> 1 <b>2</b></p><script>four</script><p translate=no>five <i>six</i></p>3"


def test_what_is_said_is_text() -> None:
    assert Markup("<p>one</p>").filled(["<script>alert(1)</script>"]) == "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"


@pytest.mark.parametrize(
    "text", ["<" * 5000, "<a " * 2000, "</b>" * 2000, "<!--" * 100, "&#xffffffff;", "<p" + "\0" * 9]
)
def test_odd_markup_is_read_to_its_end(text: str) -> None:
    found = Markup(text)
    assert isinstance(found.filled(found.texts), str)


def test_what_cannot_be_read_is_told() -> None:
    with pytest.raises(ValueError, match="unknown status keyword"):
        Markup("<![x y]>")
