"""What a dataset is for, by the look of it: pairs to transduce, sources with a label, words with tags, or plain text.

The rules are made so that a doubt ends in `transduce`, which can learn all that the others can. They look at different
pairs only, since pairs that stand often say nothing new. This file judges examples; it opens no file.

    tags      both sides have equally many words; those of the target are few, stand often, and are not the source's own
    number    all targets are numbers, some with a fraction, and they repeat themselves
    labels    targets are lists between `;`, `|` or `,`, of few different parts, each once in a list
    label     few different targets, each of many different sources; but not where targets are put together from fewer
              parts (dates, commands, numbers in words), or stand in their sources: those are written, not chosen
    language  plain text, without sources
    retrieve  never by its looks: pairs could be written as well, so a person says it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from seqloom.data.examples import ITEMS, Example
from seqloom.figures import number_in
from seqloom.models.generator import GeneratorSettings

Task = Literal["transduce", "label", "labels", "number", "tags", "language", "retrieve"]
TASKS: tuple[Task, ...] = get_args(Task)
MEANING: dict[Task, str] = {
    "transduce": "pairs: a target is written for every source",
    "label": "labels: one of a few is chosen for every source",
    "labels": "sets of labels: several of a few are chosen for every source, or none",
    "number": "numbers: one is told for every source",
    "tags": "tags: one of a few is chosen for every word",
    "language": "a text to go on with: a language model",
    "retrieve": "questions and their answers: the right text is found among many",
}
EXAMPLES: dict[Task, str] = {
    "transduce": "pairs",
    "label": "examples",
    "labels": "examples",
    "number": "examples",
    "tags": "sentences",
    "language": "texts",
    "retrieve": "pairs",
}

MOST_LABELS = 200  # different ones; of more each is rarely seen
FEWEST_EACH = 10  # different sources of a label, and words of a tag, on average
MOST_TAGS = 1_000  # in a file of tags, where nothing else can be meant: with more they are words (lemmas, forms)
SAME_COUNT = 0.98  # of the sentences: a few may be mistakes, which `check` is there to find
WORDS_PER_TAG = 2  # different words for each different tag; fewer: a translation word by word
COMPOSED = 1.5  # parts of a target on average, from which on it may be put together
COPIED, HALF_COPIED = 0.5, 0.25  # of targets, or of their parts, that stand in their own source more often than others'
COMPARED = 2_000  # pairs whose targets are looked for in their sources
REPEATED = 2  # times that a number stands there on average: prices may all differ, but then who knows
SEPARATORS = (ITEMS, "|", ",")  # between the labels of sets
_PART = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
ANNOTATED, TEXT = ("conllu", "columns"), "text"  # kinds of readers

Pair = tuple[str, str]


@dataclass(frozen=True)
class Guess:
    """What a dataset seems to be for, by what sign, and what may have gone wrong, if anything looks like it."""

    task: Task
    why: str
    doubt: str = ""

    @property
    def told(self) -> str:
        return f"taken for {MEANING[self.task]} ({self.why})"


def task_of(model: GeneratorSettings) -> Task:
    """What a recipe's model is for."""
    if model.continues:
        return "language"
    if model.ranks:
        return "retrieve"
    if model.in_place:
        return "tags"
    if model.measures:
        return "number"
    if model.labels:
        return "labels" if "target" in model.may_be_empty else "label"
    return "transduce"


def guessed(reader: str, sample: Sequence[Example]) -> Guess:
    """What examples of a reader of this kind are for."""
    if reader == TEXT:
        tabs = sum("\t" in example.target for example in sample)
        doubt = "nearly every line has a tab: if these are pairs, say {kind: tsv, path: FILE}"
        return Guess("language", "plain text, without sources", doubt if tabs > 0.9 * len(sample) else "")
    pairs = [pair for pair in dict.fromkeys((_joined(one), one.target) for one in sample) if all(map(str.strip, pair))]
    if reader in ANNOTATED:
        different = len({tag for _, target in pairs for tag in target.split()})
        if different <= MOST_TAGS:
            return Guess("tags", f"a file of words with {different:,} different tags")
        return Guess(
            "transduce", f"a file of words, but with {different:,} different tags, more than can be chosen from"
        )
    tags = "" if sample and sample[0].extras else _why_tags(pairs)
    if tags:
        return Guess("tags", tags)
    if numbers := _why_numbers(pairs):
        return Guess("number", numbers)
    if sets := _why_sets(pairs):
        return Guess("labels", sets)
    label = _why_labels(pairs)
    return Guess("label", label) if label else Guess("transduce", "pairs of source and target", _doubt(sample, pairs))


def _joined(example: Example) -> str:
    return " ".join(example.key)


def _doubt(sample: Sequence[Example], pairs: Sequence[Pair]) -> str:
    """Signs of the wrong columns, in words; empty where there are none."""
    if _why_labels([(target, source) for source, target in pairs]):
        few = len({source for source, _ in pairs})
        return f"only {few:,} different sources: if they are the labels, name the columns the other way round: [1, 0]"
    if len(sample) >= MOST_LABELS and len(pairs) * 2 * FEWEST_EACH < len(sample):
        return f"of {len(sample):,} pairs only {len(pairs):,} are different: are these the right columns?"
    return ""


# --- labels ------------------------------------------------------------------------------------------------------


def _why_labels(pairs: Sequence[Pair]) -> str:
    """The reason to take targets for labels; empty where they are none."""
    targets = Counter(target for _, target in pairs)
    if not targets or len(targets) > MOST_LABELS or len(pairs) < FEWEST_EACH * len(targets):
        return ""
    if _is_composed(pairs, list(targets)) or _excess(pairs, lambda shared: float(shared == 1)) > COPIED:
        return ""
    if len(targets) == 1:
        return "one and the same for all"
    return f"{len(targets):,} different ones, each of about {len(pairs) / len(targets):,.0f} sources"


def _is_composed(pairs: Sequence[Pair], targets: Sequence[str]) -> bool:
    """Whether targets are put together from fewer parts than there are targets.

    2024-05-17 has a part that 2023-05-02 has as well; World and Sports have nothing in common.
    """
    parts = [_parts(target) for target in targets]
    inventory = len(set().union(*parts))
    if sum(map(len, parts)) < COMPOSED * len(targets):
        return False
    return 2 * inventory <= len(targets) or (
        inventory < len(targets) and _excess(pairs, lambda shared: shared) > HALF_COPIED
    )


def _excess(pairs: Sequence[Pair], value: Callable[[float], float]) -> float:
    """How much more of targets stands in their own sources than stands there of any target.

    The mean of value(share of the parts that stand in the source), less what the targets of other sources would give.
    """
    some = pairs[:: max(1, len(pairs) // COMPARED)]
    targets = Counter(target for _, target in some)
    parts = {target: set(_parts(target)) for target in targets}
    own = any_target = 0.0
    for source, target in some:
        there = set(_parts(source))
        values = {
            one: value(len(found & there) / len(found)) for one, found in parts.items() if not found.isdisjoint(there)
        }
        own += values.get(target, 0.0)
        any_target += sum(targets[one] * worth for one, worth in values.items()) / len(some)
    return (own - any_target) / len(some)


def _parts(text: str) -> list[str]:
    """Words and numbers, whatever stands between them; 05 is 5."""
    return [part.lstrip("0") or "0" for part in _PART.findall(text.casefold())]


# --- numbers, sets of labels ----------------------------------------------------------------------------------------


def _why_numbers(pairs: Sequence[Pair]) -> str:
    """The reason to take targets for numbers on a scale; the first may be the name of a column."""
    targets = [target for _, target in pairs[1:]]
    different = {number_in(target) for target in targets}
    if len(targets) < FEWEST_EACH or None in different or len(targets) < REPEATED * len(different):
        return ""
    numbers = [number for number in different if number is not None]
    if all(number.is_integer() for number in numbers):  # they may be classes, or sums that are written in figures
        return ""
    return f"numbers from {min(numbers):g} to {max(numbers):g}"


def separator_of(targets: Sequence[str], known: Sequence[str] = SEPARATORS) -> str:
    """What stands between the labels of sets: the first usual sign that one in twenty has; `;` where none does."""
    return next((sign for sign in known if sum(sign in text for text in targets) * 20 >= len(targets)), ITEMS)


def _why_sets(pairs: Sequence[Pair]) -> str:
    """The reason to take targets for sets of labels; empty where they are none."""
    sign = separator_of([target for _, target in pairs])
    sets = [[label.strip() for label in target.split(sign)] for _, target in pairs]
    labels = Counter(label for one in sets for label in one)
    several = sum(len(one) > 1 for one in sets)
    if several * 20 < len(sets) or len(labels) > MOST_LABELS or labels.total() < FEWEST_EACH * len(labels):
        return ""
    if sum(len(set(one)) < len(one) for one in sets) * 100 > len(sets) or "" in labels:
        return ""
    if _excess(pairs, lambda shared: shared) > HALF_COPIED:
        return ""
    return f"{len(labels):,} different labels, {labels.total() / len(sets):.1f} for a source, {sign!r} between them"


# --- tags --------------------------------------------------------------------------------------------------------


def _why_tags(pairs: Sequence[Pair]) -> str:
    """The reason to take targets for tags of the source's words; empty where they are none."""
    sides = [(source.split(), target.split()) for source, target in pairs]
    even = [(words, tags) for words, tags in sides if len(words) == len(tags)]
    count = sum(len(words) for words, _ in even)
    if not even or len(even) < SAME_COUNT * len(pairs) or count < 2 * len(even):
        return ""
    words = {word for source, _ in even for word in source}
    tags = {tag for _, target in even for tag in target}
    if len(tags) > MOST_LABELS or count < FEWEST_EACH * len(tags) or len(words) < WORDS_PER_TAG * len(tags):
        return ""
    if 2 * len(tags & words) > len(tags):
        return ""
    return f"as many words in the target as in the source, and only {len(tags):,} different ones"
