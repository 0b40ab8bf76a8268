"""Explained answers as one HTML file that opens from disk: no network, no framework, nothing beside it.

What is shown travels as JSON inside of a script element that browsers do not run; `static/view.js` draws an answer,
`static/page.js` what is around it (`scripts.py` makes one script of the modules). Every text is data of the user:
nothing of it can end that element, and the script puts it on the page as text only. A policy in the file's head lets
this script and this style work, each by its hash, lets pictures stand in the file itself, and forbids everything else.

A weight w travels as one byte, q = round(255 sqrt(w)), and is (q / 255)^2 again: off by at most 0.004, and small ones
keep their size, which entropy and coverage are made of. Nothing here explains, writes a file or opens a browser.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.probe.bins import MANY, bins_of, summed
from seqloom.probe.explain import Explanation, Told
from seqloom.probe.origins import Attribution
from seqloom.probe.scripts import joined, static
from seqloom.probe.tree import WORDS, Tree
from seqloom.specials import BOS, SPECIALS

DIGITS = 4  # of log-probabilities and scores
STEPS = 255  # that a weight is told in

_DANGEROUS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(
    explanations: Sequence[Explanation],
    *,
    title: str,
    notes: Sequence[str] = (),
    before: Explanation | None = None,
    command: str = "",
    attribution: Attribution | None = None,
) -> str:
    """The whole file. `notes` are lines under the title.

    `before` is the first answer as it is without edits, `command` the command line that makes them; `attribution` is of
    the first answer, and drawn as its attention is.
    """
    if not explanations:
        raise SeqloomError("E_USAGE", "a page shows at least one answer")
    shown = [*explanations, *([] if before is None else [before])]
    edit: Plain = None if before is None else {"before": len(explanations), "command": command}
    payload: dict[str, Plain] = {
        "title": title,
        "notes": list(notes),
        **drawing(),
        "answers": [packed_answer(shown[0], attribution), *map(packed_answer, shown[1:])],
        "edit": edit,
        "method": None if attribution is None else attribution.method,
    }
    return document(title, payload, _plainly(shown), "page.js", ("page.css",))


def drawing() -> dict[str, Plain]:
    """What the script must know of every answer that it draws."""
    fates: dict[str, Plain] = {str(fate): words for fate, words in WORDS.items()}
    return {"begin": SPECIALS[BOS], "steps": STEPS, "fates": fates}


def document(title: str, payload: Plain, plainly: str, entry: str, styles: Sequence[str]) -> str:
    """A file of its own: `static/`'s script draws the payload; `plainly` is for who runs no scripts."""
    script = joined(entry)
    style = "\n".join(static(name) for name in styles)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    body = f"""<noscript>
<h1>{escaped(title)}</h1>
<p>The texts alone: all pictures are drawn by a script, which this browser does not run.</p>
{plainly}
</noscript>
<script type="application/json" id="data">{_inside(payload)}</script>
<script>{script}</script>"""
    return _file(title, body, style, policy)


def still_document(title: str, body: str, styles: Sequence[str]) -> str:
    """A file of its own without any script: `body` is markup that its maker escaped."""
    style = "\n".join(static(name) for name in styles)
    return _file(
        title, body, style, f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )


def _file(title: str, body: str, style: str, policy: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escaped(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


# --- text that stays text ------------------------------------------------------------------------------------------


def _inside(payload: Plain) -> str:
    """JSON in ASCII without a character that means something to HTML: nothing can end the element around it."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).translate(_DANGEROUS)


def escaped(text: str) -> str:
    """Halves of surrogate pairs, which no file can hold, become question marks."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def _plainly(shown: Sequence[Explanation]) -> str:
    return "\n".join(
        f'<p dir="auto">{escaped(one.text)}</p>\n<p dir="auto"><strong>{escaped(one.answer)}</strong></p>'
        for one in shown
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


# --- the payload ---------------------------------------------------------------------------------------------------


def packed_answer(found: Explanation, attribution: Attribution | None = None) -> dict[str, Plain]:
    most = MANY if found.grid is None else len(found.source)  # a region is drawn in its place, however many there are
    is_binned = found.grid is None and found.frames > most  # positions are then not those that a model knows
    places, found = bins_of(found.frames, len(found.source), most), found.binned(most)
    stacks = {"source": found.weights, "within_source": found.within_source, "within_output": found.within_output}
    if attribution is not None:
        of_source, of_output = (shares.astype(np.float32)[None, None] for shares in attribution.shares())
        stacks |= {"from_source": summed(of_source, places), "from_output": of_output}
    attention: dict[str, Plain] = {name: _packed(stack) for name, stack in stacks.items() if len(stack)}
    return {
        "text": found.text,
        "extras": dict(found.extras),
        "answer": found.answer,
        "log_prob": number(found.log_prob),
        "truncated": found.truncated,
        "between": None if found.between is None else list(found.between),
        "ends": found.ends,
        "binned": is_binned,
        "source": {**_side(_typed(found), found.read, found.text), "unknown": sorted(found.unknown)},
        "output": _side([told.token for told in found.output], found.said, found.answer),
        "steps": [_step(told) for told in found.output],
        "attention": attention,
        "signal": None if found.signal is None else _drawn(found.signal),
        "tree": None if found.tree is None else _tree(found.tree),
        **_picture(found),
    }


def _picture(found: Explanation) -> dict[str, Plain]:
    """The picture that was read, where there is one to draw, and the grid that weights are over."""
    if found.grid is None:
        return {}
    if not found.picture:
        return {"regions": True}
    return {"picture": {"uri": found.picture, "rows": found.grid[0], "columns": found.grid[1]}}


def _side(tokens: Sequence[str], words: Sequence[int], text: str) -> dict[str, Plain]:
    """Tokens, the word that each is a part of (-1: none), and how the words read."""
    return {"tokens": list(tokens), "words": list(words), "labels": list(text.split())}


def _typed(found: Explanation) -> list[str]:
    """The source's tokens as a person knows them: those that the model does not know as they stand in the text."""
    return [found.unknown.get(place, token) for place, token in enumerate(found.source)]


def _step(told: Told) -> Plain:
    likeliest: list[Plain] = [[token, number(value)] for token, value in told.likeliest]
    return {"log_prob": number(told.log_prob), "rank": told.rank, "likeliest": likeliest}


def _packed(weights: Float32[np.ndarray, "L H T S"]) -> dict[str, Plain]:
    """One byte per weight."""
    codes = np.rint(np.sqrt(np.clip(weights, 0, 1)) * STEPS).astype(np.uint8)
    return {"shape": list(weights.shape), "codes": base64.b64encode(codes.tobytes()).decode("ascii")}


def _drawn(signal: Float32[np.ndarray, "S F"]) -> dict[str, Plain]:
    """A picture of F rows, the highest feature on top, one byte per point: from nearly the least to nearly the most."""
    low, high = np.percentile(signal, [2, 98])
    codes = np.rint(np.clip((signal - low) / max(high - low, 1e-6), 0, 1) * 255).astype(np.uint8).T[::-1]
    return {"shape": list(codes.shape), "codes": base64.b64encode(codes.tobytes()).decode("ascii")}


def _tree(tree: Tree) -> list[Plain]:
    """One short row per node: its parent, step, token, log-probability, total, score, fate and whether it won."""
    return [
        [
            node.parent,
            node.step,
            token,
            number(node.log_prob),
            number(node.total),
            number(node.score),
            str(node.fate),
            node.won,
        ]
        for node, token in zip(tree.nodes, tree.tokens, strict=True)
    ]


def number(value: float) -> float | None:
    """None where it is beyond all numbers, which JSON has no word for: what cannot be has log-probability -inf."""
    return round(value, DIGITS) if math.isfinite(value) else None
