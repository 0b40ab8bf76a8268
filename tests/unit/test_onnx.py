"""Exported ONNX graphs step like the model, for sources and outputs of any length, and serve the whole search."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch.fx.experimental import _config as symbolic_shapes

import seqloom
from commands import trained
from damage import damaged
from seqloom.api.export import export_run, load_onnx
from seqloom.batch import Batch, Tokens
from seqloom.cards import listed_files
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.export.onnx import Held, OnnxScorer, write
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.nn.fusion import fusing
from seqloom.nn.recurrent import GRU, LSTM
from seqloom.specials import BOS, EOS

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

VOCABULARY = 20
WISHES: list[dict[str, object]] = [
    {"beam": 4, "n_best": 2},
    {"beam": 1, "banned": ("a",)},
    {"strategy": {"kind": "sample", "seed": 3}},
]
STACK = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "positions": "rotary"}
MODELS_TO_EXPORT: dict[str, dict[str, object]] = {
    "Transformer": {"encoder": STACK, "decoder": STACK},
    "LSTM, two layers, Luong": {"encoder": {"width": 16, "layers": 2}, "decoder": {"kind": "luong", "width": 16}},
    "GRU, source reversed, Bahdanau": {
        "encoder": {"width": 16, "cell": "gru", "reverse": True},
        "decoder": {"kind": "bahdanau", "width": 16, "cell": "gru"},
        "head": {"kind": "mlp"},
    },
}


@pytest.fixture(autouse=True)
def symbolic_sizes() -> Iterator[None]:
    """While a graph is made, sizes are symbols: the checks of types and shapes, which want numbers, rest."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def network(**parts: object) -> Generator:
    raw = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}, **parts}
    torch.manual_seed(1)
    settings = validated(EncoderDecoder.Settings, raw, "test")
    return MODELS.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY).eval()


@pytest.mark.parametrize("name", MODELS_TO_EXPORT)
@torch.inference_mode()
def test_graphs_step_like_the_model(name: str, tmp_path: Path) -> None:
    """Other numbers of sources, of rows per source and of steps than those the graphs were made with."""
    made = network(**MODELS_TO_EXPORT[name])
    with torch.inference_mode(False):
        write(made, (VOCABULARY, VOCABULARY), tmp_path)
    scorer = OnnxScorer(tmp_path, threads=1)
    for lengths in ((1,), (4, 11), (7, 1, 3, 3, 9, 2)):
        sources = {"source": Tokens.pad([[6 + (i + k) % 14 for i in range(n)] for k, n in enumerate(lengths)])}
        ours, theirs = made.start(sources, 3), scorer.start(sources, 3)
        last = torch.full((3 * len(lengths),), BOS)
        for step in range(6):
            (expected, ours), (found, theirs) = made.step(last, ours), scorer.step(last, theirs)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            last = (torch.arange(len(last)) * 7 + step) % 14 + 6
            order = torch.arange(len(last)).flip(0).view(-1, 3).flip(0).flatten()  # rows change places in their source
            ours, theirs = ours.select(order), theirs.select(order)


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_a_cell_that_holds_its_state_behind_the_end(kind: type[LSTM] | type[GRU]) -> None:
    torch.manual_seed(2)
    cell = kind(kind.Settings(), inputs=5, size=4)  # type: ignore[arg-type]
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    state = tuple(torch.randn(3, 4) for _ in kind.parts)
    expected, final = cell(x, state, lengths)
    found, held = Held(cell)(x, state, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row, :length], expected[row, :length])
    for ours, theirs in zip(final, held, strict=True):
        torch.testing.assert_close(theirs, ours)


def test_a_run_answers_the_same_whatever_is_asked(tmp_path: Path) -> None:
    import shutil

    run = Path(shutil.copytree(trained(), tmp_path / "run"))
    with pytest.raises(SeqloomError, match=r"not exported yet.*--to onnx"):
        load_onnx(run)
    export_run(run, to="onnx")
    rng = random.Random(1)
    texts = ["".join(rng.choice("abcdefgh") for _ in range(rng.randint(1, 9))) for _ in range(20)]
    own, other = seqloom.load(run, device="cpu"), load_onnx(run, threads=1)
    for options in WISHES:
        for ours, theirs in zip(own(texts, **options), other(texts, **options), strict=True):
            assert [output.text for output in theirs.hypotheses] == [output.text for output in ours.hypotheses]
            assert theirs.token_scores == pytest.approx(ours.token_scores, abs=1e-4)
    for name in damaged(run / "onnx", "onnx.json"):
        with pytest.raises(SeqloomError, match="E_BUNDLE") as no:
            load_onnx(run)
        assert name in no.value.where
    load_onnx(run)
    _refuse_strange_cards(run)
    with pytest.raises(SeqloomError, match=r"E_USAGE.*runs on a CPU"):
        load_onnx(run, device="cuda")
    with pytest.raises(SeqloomError, match=r"E_USAGE.*'int8' for onnx"):
        export_run(run, quantise="int8", to="onnx")


def _refuse_strange_cards(run: Path) -> None:
    """A card that leaves a file out, one that names a state which the graphs do not have, and weights of before."""
    path = run / "onnx" / "onnx.json"
    card = json.loads(path.read_text())
    wrong = {
        "the card names no step.onnx": {**card, "files": {"start.onnx": card["files"]["start.onnx"]}},
        "the card and the graphs do not agree": {**card, "rows": {**card["rows"], "other": [0]}},
        "trained on after it was exported": {**card, "weights": "0" * 64},
        "needs seqloom": {**card, "format": 2},
    }
    for complaint, changed in wrong.items():
        path.write_text(json.dumps(changed))
        with pytest.raises(SeqloomError, match=complaint):
            load_onnx(run)
    nothing = run / "onnx" / "step.onnx"
    nothing.write_bytes(b"nothing")
    card["files"]["step.onnx"] = listed_files(run / "onnx")["step.onnx"]
    path.write_text(json.dumps(card))
    with pytest.raises(SeqloomError, match=r"E_BUNDLE.*ONNX Runtime cannot open it"):
        load_onnx(run)


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"encoder": {"width": 8, "cell": "elman"}}, "an encoder of Elman cells"),
        ({"decoder": {"kind": "luong", "width": 8}, "head": {"kind": "copy"}}, "an output layer that copies"),
        ({"decoder": {"kind": "monotonic", "width": 8}}, "this model"),
    ],
)
def test_what_cannot_be_written_is_refused(parts: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(SeqloomError, match=f"E_USAGE.*ONNX export does not know {complaint}"):
        write(network(**parts), (VOCABULARY, VOCABULARY), tmp_path)


def test_models_are_exported_after_others_were_trained_compiled_and_exported() -> None:
    """In a process of its own: the tests' shape checks of every call are nothing that can be compiled."""
    shared = {**os.environ, "PYTHONPATH": f"{Path(seqloom.__file__).parents[1]}:{Path(__file__).parents[1]}"}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=500, env=shared)
    assert done.returncode == 0, done.stderr[-2000:]


def _export_after_all_that() -> None:
    rows = Tokens.pad([[7, 8, 9, EOS], [10, EOS], [6, 6, 11, EOS]])
    compiled = network(**MODELS_TO_EXPORT["Transformer"]).train()
    with fusing("aot_eager"):
        compiled.losses(Batch({"source": rows}, rows))[0].sum().backward()  # type: ignore[no-untyped-call]
    symbolic_shapes.use_duck_shape = False  # as somebody else may have left it
    for name in (*MODELS_TO_EXPORT, "Transformer"):
        with tempfile.TemporaryDirectory() as folder:
            write(network(**MODELS_TO_EXPORT[name]), (VOCABULARY, VOCABULARY), Path(folder))
    assert not symbolic_shapes.use_duck_shape, "and as it stays"
    with tempfile.TemporaryDirectory() as folder:
        write(compiled.eval(), (VOCABULARY, VOCABULARY), Path(folder))


if __name__ == "__main__":
    _export_after_all_that()
