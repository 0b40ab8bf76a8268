"""The page as a file: no text of a user changes its structure, nothing in it asks for more, weights come back."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explanations import END, looks, made, sentence, small_tree, spread, told
from seqloom.errors import SeqloomError
from seqloom.probe.explain import Explanation
from seqloom.probe.page import page

NASTY = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "&lt;b&gt;",
    "\u2028\u2029",
    "\x00\x1b[2J",
    "\ud800",
    "'\"`${alert(1)}\\",
]


class Parsed(HTMLParser):
    """The page as a browser reads it: its tags, and what stands inside of scripts, styles and the title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        values = dict(attrs)
        self._open = "data" if values.get("id") == "data" else tag
        if values.get("http-equiv") == "Content-Security-Policy":
            self.inside["policy"] = values["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open] = self.inside.get(self._open, "") + data


def payload(text: str) -> dict[str, object]:
    found = json.loads(Parsed(text).inside["data"])
    assert isinstance(found, dict)
    return found


def answers(text: str) -> list[dict[str, object]]:
    return payload(text)["answers"]  # type: ignore[return-value]


def saying(text: str) -> Explanation:
    """The same text as source, token, output, runner-up and extra."""
    shown = made([text, END], [replace(told("x"), token=text), told(END)], spread((1, 1, 2, 2)), texts=(text, text))
    return replace(shown, extras={"tags": text}, tree=replace(small_tree(), tokens=("<s>", *[text] * 5)))


def unpacked(stack: dict[str, object]) -> np.ndarray:
    """What page.js does with the codes."""
    codes = np.frombuffer(base64.b64decode(str(stack["codes"])), dtype=np.uint8)
    return (codes.astype(np.float64).reshape(stack["shape"]) / 255) ** 2  # type: ignore[call-overload]


@pytest.mark.parametrize("text", NASTY)
def test_no_text_changes_the_structure_and_every_text_arrives(text: str) -> None:
    harmless, found = (page([saying(one)], title=one, notes=[one], command=one) for one in ("x", text))
    assert Parsed(found).tags == Parsed(harmless).tags
    shown = answers(found)[0]
    assert shown["text"] == shown["answer"] == text
    assert shown["extras"] == {"tags": text}
    assert payload(found)["notes"] == [text]
    assert isinstance(found.encode("utf-8"), bytes)


@given(st.text(st.characters(), max_size=30))
def test_any_text_stays_text(text: str) -> None:
    found = page([saying(text)], title=text)
    assert Parsed(found).tags == Parsed(page([saying("x")], title="x")).tags
    assert answers(found)[0]["text"] == text


def test_only_its_own_script_and_style_may_work() -> None:
    found = Parsed(page([sentence(4)], title="t"))
    policy = dict(part.strip().split(" ", 1) for part in found.inside["policy"].split(";"))

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == hashed(found.inside["script"])
    assert policy["style-src"] == hashed(found.inside["style"])


def test_nothing_is_asked_for_and_no_data_becomes_markup() -> None:
    static = resources.files("seqloom.probe") / "static"
    script, style = ((static / name).read_text("utf-8") for name in ("page.js", "page.css"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", script + style)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|fetch\(|XMLHttp", script
    )
    found = page([sentence(4)], title="t")
    assert not re.search(r"<(?:link|img|iframe|object|embed)|\ssrc=|\shref=", found.split("<script", 1)[0])


@pytest.mark.parametrize("name", ["weights", "within_source", "within_output"])
def test_weights_come_back(name: str) -> None:
    shown = sentence(12)
    wanted = getattr(shown, name).astype(np.float64)
    stacks = answers(page([shown], title="t"))[0]["attention"]
    found = unpacked(stacks["source" if name == "weights" else name])  # type: ignore[index]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=0.004)
    small = (wanted > 0.001) & (wanted < 0.1)
    np.testing.assert_allclose(found[small], wanted[small], rtol=0.13)


def test_entropy_and_coverage_can_be_told_from_what_comes_back() -> None:
    """Also where a row is spread over a hundred tokens: plain bytes of a weight of 0.01 would be off by a fifth."""
    shown = sentence(100, 1, 1)
    found = unpacked(answers(page([shown], title="t"))[0]["attention"]["source"])  # type: ignore[index]
    logs = np.log2(found, out=np.zeros_like(found), where=found > 0)
    np.testing.assert_allclose(-(found * logs).sum(-1), shown.entropy(), atol=0.05)
    np.testing.assert_allclose(found[-1].mean(0).sum(0), shown.coverage(), rtol=0.03)


def test_certain_weights_are_exact() -> None:
    shown = made(["a", END], [told("b"), told(END)], looks([1, 0], [0, 1]))
    assert unpacked(answers(page([shown], title="t"))[0]["attention"]["source"]).tolist() == [[[[1, 0], [0, 1]]]]  # type: ignore[index]


def test_fifty_sentences_with_all_heads_stay_small() -> None:
    shown = [sentence(25, layers=3, heads=4, seed=seed) for seed in range(50)]
    weights = sum(one.weights.size + one.within_source.size + one.within_output.size for one in shown)
    assert len(page(shown, title="t")) < 1.4 * weights + 50 * 6_000 + 60_000


def test_what_cannot_be_said_has_no_number() -> None:
    shown = made(["a", END], [told("b", 0.0, rank=9), told(END)])
    found = answers(page([shown], title="t"))[0]
    assert found["log_prob"] is None
    assert found["steps"][0]["log_prob"] is None  # type: ignore[index]
    assert found["steps"][1]["log_prob"] == pytest.approx(math.log(0.5), abs=1e-4)  # type: ignore[index]
    assert found["attention"] == {}


def test_the_tree_comes_whole() -> None:
    tree = small_tree()
    shown = made(["a", END], [told("a"), told("b"), told(END)], tree=tree)
    rows = answers(page([shown], title="t"))[0]["tree"]
    assert [(row[0], row[1], row[2], row[6], row[7]) for row in rows] == [  # type: ignore[attr-defined]
        (node.parent, node.step, token, node.fate, node.won)
        for node, token in zip(tree.nodes, tree.tokens, strict=True)
    ]


def test_an_edit_stands_beside_what_was_there_before() -> None:
    after, before = sentence(3), replace(sentence(4), answer="as it was")
    found = payload(page([after], title="t", before=before, command="seqloom explain 'a <b>'"))
    assert found["edit"] == {"before": 1, "command": "seqloom explain 'a <b>'"}
    assert found["answers"][1]["answer"] == "as it was"  # type: ignore[index]


def test_readers_without_scripts_get_the_answers() -> None:
    found = page([replace(sentence(3), answer="1 < 2")], title="t")
    assert "<strong>1 &lt; 2</strong>" in found.split("<noscript>")[1].split("</noscript>")[0]


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(SeqloomError, match="at least one answer"):
        page([], title="t")
