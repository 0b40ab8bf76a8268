"""On a GPU: loops that are written out find what autograd finds step by step, with the kernels of a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.models.model import MODELS
from seqloom.nn.recurrent import CELLS, Bidirectional, read_through
from seqloom.nn.unrolled import step_by_step
from seqloom.runtime import Runtime, apply

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FEEDING = {"kind": "luong", "context": {"recurrence": "attentional", "readout": True}}
WAYS: dict[str, dict[str, object]] = {"previous": {"kind": "bahdanau"}, "current": FEEDING}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", list(CELLS))
def test_losses_and_gradients_are_those_of_single_steps(cell: str, way: str) -> None:
    torch.manual_seed(1)
    widths = {"source_embedding": {"width": 16}, "target_embedding": {"width": 16}}
    parts = {"encoder": {"width": 16, "cell": cell}, "decoder": {"width": 16, "cell": cell, **WAYS[way]}}
    settings = MODELS.settings({"kind": "encoder_decoder", **widths, **parts})
    model = MODELS.build(settings, source_vocabulary=20, target_vocabulary=20)
    model = model.to(apply(Runtime(device="cuda", tf32=False))).train()
    rows = [[7, 8, 9, 10, 2], [11, 12, 2], [6, 13, 14, 2]]
    batch = Batch({"source": Tokens.pad(rows)}, Tokens.pad(rows)).to(torch.device("cuda"))

    def found() -> list[Tensor]:
        model.zero_grad()
        loss = model.losses(batch, smoothing=0.1)[0].sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    written = found()
    with step_by_step():
        plain = found()
    for one, other in zip(written, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", list(CELLS))
def test_cells_side_by_side_read_what_each_reads_alone(cell: str) -> None:
    torch.manual_seed(2)
    apply(Runtime(device="cuda", tf32=False))
    layer = Bidirectional(CELLS.settings(cell), inputs=3, width=8, both=True, learned_start=False).cuda()
    x, lengths = torch.randn(3, 4, 3, device="cuda"), torch.tensor([4, 1, 3], device="cuda")
    cells, states = list(layer.cells), [start(x) for start in layer.starts]
    together = read_through(cells, [x, x], states, lengths)  # type: ignore[arg-type]
    mask = (torch.arange(4, device="cuda") < lengths[:, None])[..., None]
    for (outputs, final), module, state in zip(together, cells, states, strict=True):
        wanted, last = module(x, state, lengths)
        torch.testing.assert_close(outputs * mask, wanted * mask, rtol=1e-4, atol=1e-5)
        for one, other in zip(final, last, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
