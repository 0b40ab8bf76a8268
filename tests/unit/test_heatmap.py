"""Attention maps: the weights are those of search, and their drawing fits any terminal."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from seqloom.data.batching import ended
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.tokenizers import Characters
from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.nn.tape import Tape
from seqloom.probe.explain import AttentionMap, Explanation, Forced, explained
from seqloom.probe.heatmap import LONGEST, Style, render, style_of
from seqloom.specials import BOS, EOS

TEXTS = ["abcdef", "fedcba", "a b c"]
ANSI = re.compile("\x1b\\[[0-9;]*m")


def codec() -> TextCodec:
    return TextCodec.train(TextCodec.Settings(tokenizer=Characters.Settings()), lambda: TEXTS, seed=1)


def network(decoder: dict[str, object]) -> EncoderDecoder:
    torch.manual_seed(0)
    size = len(codec().vocabulary)
    raw = {
        "source_embedding": {"width": 8},
        "target_embedding": {"width": 8},
        "encoder": {"width": 16},
        "decoder": {"width": 16, **decoder},
    }
    return EncoderDecoder(
        EncoderDecoder.Settings.model_validate(raw), source_vocabulary=size, target_vocabulary=size
    ).eval()


def looked(model: EncoderDecoder, source: str, target: str) -> Explanation:
    codecs = Codecs(codec(), codec())
    pair, encoded = codecs.pair(source, target)
    return explained(model, codecs, source, Forced(encoded, pair.target))


DECODERS: dict[str, dict[str, object]] = {
    "luong": {"kind": "luong"},
    "bahdanau": {"kind": "bahdanau"},
    "input feeding": {"kind": "luong", "context": {"recurrence": "attentional"}},
    "two heads": {"kind": "luong", "attention": {"score": "bilinear", "heads": 2}},
}


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_weights_and_probabilities_are_those_of_stepping(decoder: dict[str, object]) -> None:
    model, both = network(decoder), codec()
    found = looked(model, "abc", "fed").map()
    source = ended([np.asarray(both.encode("abc"))])
    state = model.start({"source": source}, 1)
    weights, probabilities = [], []
    last = BOS
    for token in [*both.encode("fed"), EOS]:
        with torch.inference_mode(), Tape("decoder.attention") as tape:
            log_probs, state = model.step(torch.tensor([last]), state)
        weights.append(tape.joined("decoder.attention", dim=2)[0])
        probabilities.append(float(log_probs[0, token].exp()))
        last = token
    assert found.source == ("a", "b", "c", "<eos>")
    assert found.output == ("f", "e", "d", "<eos>")
    np.testing.assert_allclose(found.weights, torch.cat(weights, dim=1).numpy(), atol=1e-5)
    np.testing.assert_allclose(found.probabilities, probabilities, atol=1e-5)
    np.testing.assert_allclose(found.weights.sum(-1), 1.0, atol=1e-5)


def test_a_model_without_attention_has_no_map_and_says_so() -> None:
    found = looked(network({"kind": "rnn"}), "abc", "abc")
    assert found.weights.shape == (0, 0, 4, 4)
    with pytest.raises(SeqloomError, match="no attention") as refused:
        found.map()
    assert refused.value.code == "E_USAGE"


def test_an_empty_output_is_one_row() -> None:
    assert looked(network(DECODERS["luong"]), "abc", "").map().output == ("<eos>",)


# --- drawing -----------------------------------------------------------------------------------------------------


def drawn(source: tuple[str, ...], output: tuple[str, ...], weights: list[list[float]] | None = None) -> AttentionMap:
    shape = (1, len(output), len(source))
    filled = np.full(shape, 1 / len(source)) if weights is None else np.array([weights])
    return AttentionMap(source, output, filled.astype(np.float32), np.full(len(output), 0.5, np.float32))


def test_a_small_map_line_by_line() -> None:
    shown = drawn(("a", "of", "<eos>"), ("A", "<eos>"), [[1.0, 0.0, 0.0], [0.04, 0.3, 0.66]])
    assert render(shown, 80, "blocks") == [
        "          p  a  of <eos>",
        "    A  0.50  ██",
        "<eos>  0.50     ▒▒ ▓▓▓▓▓",
        "weight from: ░░ 0.05  ▒▒ 0.25  ▓▓ 0.50  ██ 0.75",
    ]
    assert render(shown, 80, "ascii")[1:3] == ["    A  0.50  @@", "<eos>  0.50     :: *****"]


def test_colours_change_nothing_but_colour() -> None:
    shown = drawn(("a", "b"), ("A", "B"), [[1.0, 0.0], [0.5, 0.5]])
    plain = [ANSI.sub("", line) for line in render(shown, 80, "colour")]
    assert plain[1] == "A  0.50  ██"
    assert plain[:3] != render(shown, 80, "colour")[:3]


def test_a_map_wider_than_the_terminal_becomes_panels_that_hold_every_token() -> None:
    words = tuple(f"word{n}" for n in range(20))
    lines = render(drawn(words, ("x",)), 40, "blocks")
    assert max(map(cell_len, lines[:-1])) <= 40
    assert [word for line in lines for word in re.findall(r"word\d+", line)] == list(words)
    assert lines[0] == "source tokens 1 to 5 of 20"


def test_tokens_that_would_spoil_the_picture_are_made_visible() -> None:
    shown = drawn((" ", "\x1b[31m", "\u0301", "\u200f", "x" * 40, ""), ("\t",))
    for style in ("blocks", "ascii"):
        head = render(shown, 200, style)[0]
        assert "\x1b" not in head
        assert "\u200f" not in head
        assert r"\x1b[31m" in head
        assert "x" * LONGEST not in head
    assert "◌\u0301" in render(shown, 200, "blocks")[0]


def test_the_end_of_a_line_is_not_drawn_as_a_blank() -> None:
    head, row, *_ = render(drawn((" ", "\n", "\u3000"), ("\t",)), 200, "blocks")
    assert head.split() == ["p", "␣", "⏎", "␣"]
    assert row.startswith("⇥ ")
    assert render(drawn(("\n",), ("\t",)), 200, "ascii")[0].split() == ["p", "_"]


@pytest.mark.parametrize("style", ["blocks", "ascii"])
@settings(max_examples=60, deadline=None)
@given(
    source=st.lists(st.text(max_size=20), min_size=1, max_size=12),
    output=st.lists(st.text(max_size=20), min_size=1, max_size=4),
    width=st.integers(20, 120),
)
def test_any_tokens_line_up_and_stay_within_the_width(
    style: Style, source: list[str], output: list[str], width: int
) -> None:
    full = drawn(tuple(source), tuple(output), [[1.0] * len(source)] * len(output))
    *lines, legend = render(full, width, style)
    assert legend.startswith("weight from")
    narrowest = 2 * LONGEST + len("  0.50  ")
    assert all(cell_len(line) <= max(width, narrowest) for line in lines)
    assert all(line.isprintable() for line in lines)
    if style == "ascii":
        assert all(line.isascii() for line in lines)
    ends = {cell_len(line) for line in lines if "  0.50  " in line}
    panels = sum(line.startswith("source tokens") for line in lines) or 1
    assert len(ends) <= panels  # full cells: all rows of a panel end in one column


# --- choosing a style --------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "encoding", "style"),
    [
        (Terminal(), {}, "UTF-8", "colour"),
        (Terminal(), {"NO_COLOR": "1"}, "UTF-8", "blocks"),
        (Terminal(), {"NO_COLOR": ""}, "utf-8", "colour"),
        (Terminal(), {"TERM": "dumb"}, "UTF-8", "blocks"),
        (io.StringIO(), {}, "UTF-8", "blocks"),
        (Terminal(), {}, "ANSI_X3.4-1968", "ascii"),
        (Terminal(), {}, "iso8859-1", "ascii"),
    ],
)
def test_style_follows_terminal_locale_and_no_color(
    stream: io.StringIO, environ: dict[str, str], encoding: str, style: Style
) -> None:
    assert style_of(stream, environ, encoding) == style
