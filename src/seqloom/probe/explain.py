"""Where a model looked: attention weights and probabilities of one output, from one forced pass over it.

Search carries no weights along; reading the finished output at once gives the same ones (law 1). Nothing here draws,
prints or changes the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32

from seqloom.batch import Source
from seqloom.config import Plain
from seqloom.data.batching import collate_pairs, collate_sources
from seqloom.data.codecs import Codecs, Ids, Pair
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.search.loop import search
from seqloom.specials import EOS
from seqloom.tasks.transduce import SearchSettings


@dataclass(frozen=True)
class AttentionMap:
    """Each output token's weights over the source's tokens (a row sums to 1), and its probability.

    Both sides end with the end-of-sequence token: the model reads one and writes one. Further sources with encoders of
    their own follow the source's tokens, each token under its source's name.
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
    codecs: Codecs,
    inputs: Inputs,
    output: str | None = None,
    searching: SearchSettings | None = None,
) -> AttentionMap:
    """The map of `inputs` and `output`, where no output is given of the one that search finds.

    E_USAGE when the model has no attention, or the text no tokens.
    """
    encoded = codecs.encode(inputs)
    if not encoded.own:
        raise SeqloomError("E_USAGE", "an empty text has nothing to attend to")
    device = next(network.parameters()).device
    if output is None:
        sources = {name: source.to(device) for name, source in collate_sources([encoded]).items()}
        said: Ids = np.asarray(_found(network, sources, searching), dtype=np.int64)
    else:
        said = codecs.pair(inputs, output)[0].target
    batch = collate_pairs([Pair(encoded.source, said, 0, encoded.extras, encoded.copies)]).to(device)
    network.eval()
    layers = network.attention(batch)  # each 1 H T S
    if not layers:
        what = "this model has no attention: its decoder reads one vector, so there is no map to draw"
        raise SeqloomError("E_USAGE", what, fix="train a decoder with attention, such as model.decoder.kind: luong")
    return AttentionMap(
        source=codecs.positions(encoded),
        output=tuple(codecs.said([*said.tolist(), EOS], encoded.foreign)),
        weights=layers[-1][0].float().cpu().numpy(),
        probabilities=torch.exp(-network.nll(batch)[0]).cpu().numpy(),
    )


def _found(network: Generator, sources: Mapping[str, Source], searching: SearchSettings | None) -> list[int]:
    chosen = searching or SearchSettings()
    best = search(network, sources, chosen.strategy, limits=chosen.limits)[0][0]
    return list(best.tokens)
