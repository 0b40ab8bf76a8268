"""The model, search and evaluation of a drafted recipe for plain text: a language model, which goes on with a text."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.api.commented import line
from seqloom.api.draft_pairs import stack
from seqloom.api.init import Choices

DECODERS = {
    "rnn": "remembers what it has read in a state",
    "transformer": "every token looks at all before it: quick to train on a GPU",
}


def model(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    yield line("model:", f"{sizes.width} wide suits {choices.characters / 1e6:,.1f} M characters")
    yield line("  kind: language", "P(text), from the first token on: no encoder")
    yield f"  embedding: {{width: {sizes.embedding}}}"
    if choices.target.tokenizer == "bpe" and sizes.embedding == sizes.width:
        yield line("  tied: true", "words are written with the vectors they are read with: fewer to learn")
    yield "  decoder:"
    yield line(f"    kind: {sizes.decoder}", DECODERS[sizes.decoder])
    yield from stack(sizes, sizes.decoder)
    yield line(
        f"    dropout: {sizes.dropout}", "a text that is read often is soon known by heart: dropout keeps from it"
    )


def outputs(choices: Choices) -> Iterator[str]:
    extra = 200 if choices.target.tokenizer == "characters" else 100
    yield "search:"
    yield line("  strategy: {kind: sample, temperature: 0.8}", "drawn by chance: the likeliest text is a dull one")
    yield line(f"  limits: {{extra: {extra}}}", "tokens that it goes on for, at most")
    yield "evaluation:"
    yield line("  validate_examples: 0", "what it makes up is not compared with anything; nll is measured")
