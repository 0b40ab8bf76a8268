"""The model, training and search of a drafted recipe for pairs: a target is written for every source."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.api.commented import line
from seqloom.api.init import Choices
from seqloom.api.sizes import Sizes

ENCODERS = {
    "rnn": "reads the source both ways",
    "convolution": "reads every letter with those around it: sounds depend on them",
    "transformer": "every token looks at all others: quick to train on a GPU",
}
DECODERS = {
    "luong": "looks back at the source at every step (attention)",
    "monotonic": "moves through the source from left to right, as sounds follow letters",
    "transformer": "looks back at the source and at its own words at every step",
}


def model(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    yield line("model:", f"{sizes.width} wide suits {choices.examples}")
    yield f"  source_embedding: {{width: {sizes.embedding}}}"
    yield f"  target_embedding: {{width: {sizes.embedding}}}"
    if choices.target.looks == "text":
        yield line("  tied: true", "words are written with the vectors they are read with: fewer to learn")
    yield "  encoder:"
    yield line(f"    kind: {sizes.encoder}", ENCODERS[sizes.encoder])
    yield from stack(sizes, sizes.encoder)
    yield line(f"    dropout: {sizes.dropout}", why_dropout(choices))
    yield "  decoder:"
    yield line(f"    kind: {sizes.decoder}", DECODERS[sizes.decoder])
    yield from stack(sizes, sizes.decoder)
    yield f"    dropout: {sizes.dropout}"


def why_dropout(choices: Choices) -> str:
    if choices.sizes.dropout:
        return f"{choices.examples} are soon learned by heart: dropout keeps the model from it"
    return "so many pairs cannot be learned by heart: nothing need be dropped"


def stack(sizes: Sizes, kind: str) -> Iterator[str]:
    if kind in ("rnn", "luong", "monotonic"):
        yield "    cell: lstm"
    yield f"    width: {sizes.width}"
    if kind in ("convolution", "transformer"):
        yield f"    layers: {sizes.layers}"
    if kind == "transformer":
        yield f"    heads: {sizes.width // 64}"
        yield line("    positions: rotary", "attention sees how far apart words are, not where they stand")
    if kind == "convolution":
        yield line("    kernel: 5", "letters that one layer sees at once")


def task(choices: Choices) -> Iterator[str]:
    yield "task:"
    yield line("  label_smoothing: 0.1", "never quite sure: better outputs, better confidences")
    if choices.sizes.r_drop:
        why = "two passes with other dropout must agree: slower, for little data"
        yield line(f"  r_drop: {choices.sizes.r_drop}", why)


def measured(choices: Choices) -> str:
    return {"symbols": "per", "strings": "cer", "text": "chrf"}[choices.target.looks]


def outputs(choices: Choices) -> Iterator[str]:
    yield "search:"
    yield line("  strategy: {kind: beam, size: 5}", "'predict --greedy' is quicker and, mostly, a little worse")
    if choices.max_ratio != 2.0:
        yield line(
            f"  limits: {{max_ratio: {choices.max_ratio:g}}}", "targets may have so many tokens per source token"
        )
    yield "evaluation:"
    looks, script = choices.target.looks, choices.target.script
    if looks == "symbols":
        yield line("  metrics: [string_error, per]", "outputs that are not quite right, and wrong symbols, in %")
    elif looks == "strings":
        yield line("  metrics: [exact, cer]", "outputs that are right to the letter, and wrong letters, in %")
    else:
        cut = {"CJK": "{kind: bleu, tokenize: zh}", "THAI": "{kind: bleu, tokenize: char}"}.get(script, "bleu")
        yield line(f"  metrics: [{cut}, chrf]", "agreement with the reference in words, and in characters")
        yield line("  right_at: 50", "for confidences: an output of this BLEU or more counts as right")
    if choices.merge_sources:
        yield line("  merge_sources: true", "sources with several right targets: any of them counts")
