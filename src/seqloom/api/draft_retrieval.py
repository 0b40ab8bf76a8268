"""The model, training and evaluation of a drafted recipe for retrieval: the right text is found among many."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.api.commented import line
from seqloom.api.init import Choices

BESIDE = 256  # other texts that each right one is held against, in a batch


def model(choices: Choices) -> Iterator[str]:
    width = choices.sizes.width
    yield "model:"
    yield line("  kind: dual", "one vector of a source, one of every text: near ones belong together")
    source, target = choices.source, choices.target
    if (source.tokenizer, source.size, source.coverage) == (target.tokenizer, target.size, target.coverage):
        yield line(
            "  sharing: all", "one encoder for both sides; encoder: projections of their own; none: two encoders"
        )
    else:
        yield line("  sharing: none", "both sides are cut in their own ways, so each has an encoder of its own")
    yield f"  source_embedding: {{width: {width}}}"
    yield line(f"  encoder: {{kind: bag, width: {width}}}", "words in no order; rnn, convolution, transformer know it")
    yield line("  pooling: mean", "how many states become one vector; others: max, last, attention")
    yield f"  projection: {width}"
    yield f"  dropout: {choices.sizes.dropout}"


def training(choices: Choices) -> Iterator[str]:
    steps = max(1, choices.profile.pairs // BESIDE)
    yield line(f"batching: {{sentences: {BESIDE}}}", "all other texts of a batch are wrong answers: many teach more")
    yield "training:"
    yield line(f"  epochs: {choices.epochs}", "so often through the data")
    yield line(f"  validate_every: {steps}", "steps; the best validation is what is kept")
    yield line("  metric: mrr", "which one is best: by this score on the dev set")
    yield "  optimiser: {kind: adam, lr: 0.002}"
    yield line("  schedule: {kind: cosine, warmup: 20}", "the rate falls to nothing at the last step")


def outputs() -> Iterator[str]:
    yield "evaluation:"
    yield line(
        "  metrics: [recall_at, {kind: recall_at, k: 10}, mrr]", "is the right text the first, among the ten best?"
    )
    yield line("  # among: 100", "rank each right text among 100, as papers do; without it among all of the test set")
