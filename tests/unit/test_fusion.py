"""Compiled layers and attention by products: other ways to the same loss, gradient and taps."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config as symbolic_shapes

from seqloom.api.train import Wishes, train
from seqloom.batch import Batch, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.nn import multihead
from seqloom.nn.fusion import compiling, fusible, fusing, has_fusible
from seqloom.nn.tape import Tape
from seqloom.specials import EOS
from tiny import write_recipe

VOCABULARY = 12
STACK = {"kind": "transformer", "width": 8, "layers": 2, "heads": 2, "dropout": 0.0, "positions": "rotary"}
ROWS = [[7, 8, 9, EOS], [10, EOS], [6, 6, 11, EOS]]
BATCHES = [
    Batch({"source": Tokens.pad(ROWS)}, Tokens.pad(ROWS[:1] * 3)),
    Batch({"source": Tokens.pad([[5, *row] for row in ROWS])}, Tokens.pad(ROWS)),
]


def network() -> Generator:
    torch.manual_seed(1)
    raw = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}, "encoder": STACK, "decoder": STACK}
    settings = MODELS.settings({"kind": "encoder_decoder", **raw})
    model = MODELS.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert isinstance(model, Generator)
    return model.double().train()


def outcome(model: Generator, batch: Batch) -> list[Tensor]:
    """The loss, and the gradient of every parameter."""
    model.zero_grad()
    loss = model.losses(batch)[0].sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def test_compiled_layers_have_the_same_loss_and_gradient() -> None:
    """In a process of its own: the tests' shape checks of every call are nothing that can be compiled."""
    shared = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=300, env=shared)
    assert done.returncode == 0, done.stderr[-2000:]


def compare() -> None:
    model, frames = network(), torch._dynamo.utils.counters["frames"]
    for batch in BATCHES:
        plain = outcome(model, batch)
        with fusing("aot_eager"):
            compiled = outcome(model, batch)
        torch.testing.assert_close(compiled, plain, rtol=1e-9, atol=1e-9)
        assert frames["ok"] == 2, "one function for all layers of the encoder, one for the decoder's, of any length"


@pytest.mark.parametrize(
    ("encoder", "decoder", "there"),
    [
        (STACK, STACK, True),
        (STACK, {"kind": "luong", "width": 8}, True),
        ({"width": 8}, {"kind": "luong", "width": 8}, False),
        ({**STACK, "checkpointing": True}, STACK, False),  # computed again, they would run as written
    ],
)
def test_what_can_be_compiled_is_known_before(encoder: object, decoder: object, there: bool) -> None:
    raw = {"kind": "encoder_decoder", "source_embedding": {"width": 8}, "target_embedding": {"width": 8}}
    settings = MODELS.settings({**raw, "encoder": encoder, "decoder": decoder})
    model = MODELS.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert has_fusible(model) is there


def test_on_a_cpu_it_is_said_that_nothing_is_compiled(tmp_path: Path) -> None:
    said: list[str] = []
    train(write_recipe(tmp_path), tmp_path / "run", ["runtime.compile=fused"], Wishes(tell=said.append))
    assert any("runtime.compile: fused is for a GPU" in line for line in said) != torch.cuda.is_available()


def test_where_a_tape_listens_nothing_is_compiled() -> None:
    model = network().eval()
    looks = []
    for around in (nullcontext(), fusing("aot_eager")):
        with around, Tape("decoder.0.cross", "encoder.1.self") as tape:
            model.losses(BATCHES[1])
        looks.append([tape.joined(name, dim=2) for name in ("decoder.0.cross", "encoder.1.self")])
    torch.testing.assert_close(*looks)


def test_a_function_knows_whether_it_is_compiled() -> None:
    @fusible
    def told(x: Tensor) -> Tensor:
        return x + 1 if compiling() else x

    zero = torch.zeros(1)
    assert told(zero).item() == 0
    with fusing("eager"):
        assert told(zero).item() == 1
    assert told(zero).item() == 0


def test_what_is_compiled_leaves_torch_as_it_was() -> None:
    """That sizes are not taken for equal is for what is compiled here, and for nobody else in the process."""
    before = symbolic_shapes.use_duck_shape
    with fusing("eager"):
        fusible(lambda x: x + 1)(torch.zeros(1))
        assert not symbolic_shapes.use_duck_shape
    assert symbolic_shapes.use_duck_shape is before


def test_a_compiler_that_fails_is_an_error_with_a_way_out() -> None:
    def broken(graph: object, inputs: object) -> None:
        raise RuntimeError("no working compiler")

    torch._dynamo.register_backend(broken, name="broken")  # type: ignore[no-untyped-call]
    with fusing("broken"), pytest.raises(SeqloomError, match=r"no working compiler.*runtime\.compile: auto") as refused:
        fusible(lambda x: x + 1)(torch.zeros(1))
    assert refused.value.code == "E_EXTRA"


def test_other_errors_of_a_compiled_function_are_its_own() -> None:
    with fusing("eager"), pytest.raises(RuntimeError, match="reduction dim"):
        fusible(lambda x: x @ x)(torch.zeros(2, 3))


@pytest.mark.parametrize("batch", BATCHES)
def test_attention_by_products_is_that_of_the_kernel(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    by_kernel = outcome(model, batch)
    monkeypatch.setattr(multihead, "_by_products", lambda query, keys, causal: True)
    torch.testing.assert_close(outcome(model, batch), by_kernel, rtol=1e-9, atol=1e-9)


if __name__ == "__main__":
    compare()
