"""The dimension letters as jaxtyping aliases: one legend for code, docs and messages.

B sources, K hypotheses per source, N = B*K rows, S memory positions, T target positions, D width, A score width,
H heads, V vocabulary, W = V (or V + X when copying), C classes, F features. Batch first, always.
Masks are boolean and True means real, everywhere.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

Ids = Int[Tensor, "B S"]
Mask = Bool[Tensor, "B S"]
Lengths = Int[Tensor, "B"]
States = Float[Tensor, "B S D"]
Keys = Float[Tensor, "B S A"]
Rows = Int[Tensor, "N"]
RowTokens = Int[Tensor, "N T"]
Features = Float[Tensor, "N T D"]
Query = Float[Tensor, "N T Q"]
Weights = Float[Tensor, "N T S"]
Past = Float[Tensor, "N S"]
LogProbs = Float[Tensor, "N T W"]
StepLogProbs = Float[Tensor, "N W"]
Nll = Float[Tensor, "N T"]

__all__ = [
    "Bool",
    "Features",
    "Float",
    "Ids",
    "Int",
    "Keys",
    "Lengths",
    "LogProbs",
    "Mask",
    "Nll",
    "Past",
    "Query",
    "Real",
    "RowTokens",
    "Rows",
    "Shaped",
    "States",
    "StepLogProbs",
    "Tensor",
    "Weights",
]
