"""Many outputs looked at in passing: forced passes in batches, of each output what fits on one map.

`explain.explained` tells everything of one output. Here many are read at once, and of each is kept: the last layer's
weights averaged over its heads, how probable every token was, and a few of the likeliest. Nothing here searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32

from seqloom.data.batching import collate_pairs
from seqloom.data.codecs import Codecs, Pair
from seqloom.models.generator import Generator
from seqloom.nn.tape import Tape
from seqloom.probe.explain import Explanation, Forced, Told, possible
from seqloom.shapes import Tensor
from seqloom.specials import EOS


@dataclass(frozen=True)
class Read:
    """A text as the model reads it, and the output whose tokens are forced."""

    text: str
    forced: Forced
    truncated: bool = False


@torch.inference_mode()
def glimpsed(network: Generator, codecs: Codecs, reads: Sequence[Read], likeliest: int = 3) -> list[Explanation]:
    """One forced pass over all of these together."""
    pairs = [_pair(read.forced, row) for row, read in enumerate(reads)]
    batch = collate_pairs(pairs).to(next(network.parameters()).device)
    with Tape(*network.attention_taps) as tape:
        features, state = network.forced(batch)
        log_probs = network.head.log_probs(features, state).float()  # B T W
    layers = network.attended(tape, batch) if network.attention_taps else []
    weights = layers[-1].mean(1).float().cpu().numpy() if layers else None  # B T S
    assert batch.target is not None
    own = log_probs.gather(2, batch.target.ids[..., None])  # B T 1
    ranks = (log_probs > own).sum(2) + 1
    top = log_probs.topk(min(likeliest, log_probs.shape[2]))
    widths = [source.mask.shape[1] for source in batch.sources.values()]
    told = [part.cpu() for part in (own[..., 0], ranks, top.indices, top.values)]
    seen = [None if weights is None else weights[row] for row in range(len(reads))]
    ends = not network.decoder.sure_of_end
    return [
        _explanation(codecs, read, [part[row] for part in told], seen[row], (widths, ends))
        for row, read in enumerate(reads)
    ]


def in_passing(found: Explanation) -> Explanation:
    """The same of an output that was looked at closely: its mean map, and no tree."""
    size, length = len(found.source), len(found.output)
    return replace(
        found,
        weights=found.mean[None, None] if len(found.weights) else found.weights,
        within_source=np.zeros((0, 0, size, size), dtype=np.float32),
        within_output=np.zeros((0, 0, length, length), dtype=np.float32),
        tree=None,
    )


def _pair(forced: Forced, index: int) -> Pair:
    encoded = forced.encoded
    return Pair(encoded.source, forced.tokens, index, encoded.extras, encoded.copies, words=encoded.words)


def _explanation(
    codecs: Codecs,
    read: Read,
    told: Sequence[Tensor],
    weights: Float32[np.ndarray, "T S"] | None,
    shape: tuple[Sequence[int], bool],
) -> Explanation:
    """`shape`: how wide each source is in this batch, and whether the end is a token like others."""
    encoded, (widths, ends) = read.forced.encoded, shape
    ids = [*read.forced.tokens.tolist(), *([EOS] if ends else [])]
    steps = tuple(
        Told(
            codecs.said([token], encoded.foreign)[0],
            log_prob,
            rank,
            possible(codecs.said(best, encoded.foreign), values),
        )
        for token, log_prob, rank, best, values in zip(ids, *(part[: len(ids)].tolist() for part in told), strict=True)
    )
    pieces = [step.token for step in steps[: len(read.forced.tokens)]]
    answer = codecs.target.tokenizer.decode(pieces)
    said = codecs.target.tokenizer.words(pieces, answer)
    source = codecs.positions(encoded)
    words = [-1] * (len(encoded.source) - encoded.own) + codecs.source.words(read.text)
    size, length = len(source), len(ids)
    return Explanation(
        text=read.text,
        answer=answer,
        source=source,
        output=steps,
        read=(*words, *[-1] * (size - len(words))),
        said=(*(said if len(said) == len(pieces) else [-1] * len(pieces)), *([-1] if ends else [])),
        weights=np.zeros((0, 0, length, size), dtype=np.float32)
        if weights is None
        else np.ascontiguousarray(weights[:length, _columns(read.forced, widths)])[None, None],
        within_source=np.zeros((0, 0, size, size), dtype=np.float32),
        within_output=np.zeros((0, 0, length, length), dtype=np.float32),
        truncated=read.truncated,
        ends=ends,
        frames=encoded.frames,
        grid=codecs.source.grid,
        signal=codecs.source.signal(encoded.source),
    )


def _columns(forced: Forced, widths: Sequence[int]) -> list[int]:
    """Where the real positions of one row's sources stand in a batch that pads each of them."""
    encoded, first = forced.encoded, 0
    columns: list[int] = []
    for ids, width in zip((encoded.source, *encoded.extras.values()), widths, strict=True):
        columns += range(first, first + len(ids) + 1)  # its end included
        first += width
    return columns
