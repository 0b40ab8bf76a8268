"""The model, search and evaluation of a drafted recipe for labels and tags: one of a few is chosen."""

from __future__ import annotations

import json
from collections.abc import Iterator

from seqloom.api.commented import line
from seqloom.api.draft_pairs import why_dropout
from seqloom.api.init import Choices
from seqloom.data.examples import ITEMS

WHAT = {
    "label": "one label for the whole source",
    "labels": "several labels for the whole source, or none: each is there or not by itself",
    "number": "a number for the whole source, within the range that training has",
}


def model(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    yield line("model:", f"{sizes.width} wide suits {choices.examples}")
    yield f"  source_embedding: {{width: {sizes.embedding}}}"
    yield "  encoder:"
    yield from _words(choices) if choices.task == "tags" else _source(choices)
    yield "  decoder:"
    if choices.task == "tags":
        yield line("    kind: tags", "one tag for each word")
        yield line("    transitions: true", "tags know their neighbours: those of a sentence are chosen together (CRF)")
    else:
        yield line(f"    kind: {choices.task}", WHAT[choices.task])
        yield line("    pooling: attention", "it learns which words matter; others: mean, max, last")
    yield f"    dropout: {sizes.dropout}"


def _source(choices: Choices) -> Iterator[str]:
    yield line("    kind: rnn", "reads the source both ways")
    yield f"    width: {choices.sizes.width}"
    yield line(f"    dropout: {choices.sizes.dropout}", why_dropout(choices))


def _words(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    yield line("    kind: spelled", "a word is its letters; known ones are remembered as well")
    yield line(
        f"    characters: {{kind: convolution, width: {sizes.width // 2}, kernel: 5}}",
        "beginnings and endings show in five letters",
    )
    yield line(f"    width: {sizes.width // 2}", "of what is remembered of a word")
    yield "    words:"
    yield line("      kind: rnn", "reads the words both ways")
    yield f"      width: {sizes.width}"
    yield line(f"      dropout: {sizes.dropout}", why_dropout(choices))


def _sets(choices: Choices) -> Iterator[str]:
    sign = "" if choices.separator == ITEMS else f", separator: {json.dumps(choices.separator)}"
    yield line("  strategy: greedy", "what may follow is known, so the likeliest set is found at once")
    yield "evaluation:"
    yield line("  metrics:", "sets that are wholly right; F1 of labels counted together, and averaged over labels")
    for metric in ("set_accuracy", "multilabel_f1", "multilabel_f1, average: macro"):
        yield f"    - {{kind: {metric}{sign}}}"


def measured(choices: Choices) -> str:
    return {"labels": "multilabel_f1", "number": "pearson"}.get(
        choices.task, "span_f1" if choices.spans else "accuracy"
    )


def outputs(choices: Choices) -> Iterator[str]:
    yield "search:"
    if choices.task == "labels":
        yield from _sets(choices)
        return
    if choices.task == "number":
        yield line("  strategy: greedy", "one number is one step: the likeliest is found at once")
        yield "evaluation:"
        yield line("  metrics: [mse, pearson, spearman]", "squared error; correlation of numbers, and of their ranks")
        near = choices.near
        yield line(f"  right_at: {near * near:.4g}", f"a number is right within {near:g}: what confidences promise")
        return
    if choices.task == "label":
        yield line("  strategy: greedy", "one label is one step: the likeliest is found at once")
        yield "evaluation:"
        yield line(
            "  metrics: [accuracy, f1]", "labels that are right, and F1 averaged over labels: rare ones count alike"
        )
        return
    yield line(
        "  strategy: {kind: beam, size: 8}", "tags depend on their neighbours: the likeliest row of them is searched"
    )
    yield "evaluation:"
    if choices.spans:
        yield line("  metrics: [accuracy, span_f1]", "tags that are right, and spans that are found whole")
    else:
        yield line("  metrics: [accuracy]", "tags that are right, in %")
