"""Where a model looked: attention weights and probabilities of one output, from one forced pass over it.

Search carries no weights along; reading the finished output at once gives the same ones (law 1). Nothing here draws,
prints or changes the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32

from seqloom.batch import EOS, Tokens
from seqloom.config import Plain
from seqloom.data.batching import collate_pairs, ended
from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Pair
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.search.loop import search
from seqloom.tasks.transduce import SearchSettings


@dataclass(frozen=True)
class AttentionMap:
    """Each output token's weights over the source's tokens (a row sums to 1), and its probability.

    Both sides end with the end-of-sequence token: the model reads one and writes one.
    """

    source: tuple[str, ...]  # S
    output: tuple[str, ...]  # T
    weights: Float32[np.ndarray, "H T S"]
    probabilities: Float32[np.ndarray, "T"]

    @property
    def mean(self) -> Float32[np.ndarray, "T S"]:
        """The weights averaged over the heads."""
        averaged: Float32[np.ndarray, "T S"] = self.weights.mean(axis=0)
        return averaged

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        return {
            "source": list(self.source),
            "output": list(self.output),
            "weights": self.weights.tolist(),
            "probabilities": self.probabilities.tolist(),
        }


@torch.inference_mode()
def attention(
    network: Generator,
    codecs: tuple[TextCodec, TextCodec],
    text: str,
    output: str | None = None,
    searching: SearchSettings | None = None,
) -> AttentionMap:
    """The map of `text` and `output`, where no output is given of the one that search finds.

    E_USAGE when the model has no attention, or the text no tokens.
    """
    source, target = codecs
    read = source.encode(text)
    if not read:
        raise SeqloomError("E_USAGE", "an empty text has nothing to attend to")
    device = next(network.parameters()).device
    said = _found(network, ended([np.asarray(read)]).to(device), searching) if output is None else target.encode(output)
    batch = collate_pairs([Pair(np.asarray(read), np.asarray(said, dtype=np.int64), 0)]).to(device)
    network.eval()
    layers = network.attention(batch)  # each 1 H T S
    if not layers:
        what = "this model has no attention: its decoder reads one vector, so there is no map to draw"
        raise SeqloomError("E_USAGE", what, fix="train a decoder with attention, such as model.decoder.kind: luong")
    return AttentionMap(
        source=(*source.pieces(read), *source.pieces([EOS])),
        output=(*target.pieces(said), *target.pieces([EOS])),
        weights=layers[-1][0].float().cpu().numpy(),
        probabilities=torch.exp(-network.nll(batch)[0]).cpu().numpy(),
    )


def _found(network: Generator, source: Tokens, searching: SearchSettings | None) -> list[int]:
    chosen = searching or SearchSettings()
    best = search(network, {"source": source}, chosen.strategy, limits=chosen.limits)[0][0]
    return list(best.tokens)
