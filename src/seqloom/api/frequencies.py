"""Are rare words produced when they are wanted? How often training saw each word, and word accuracy by that.

Words are the tokens of a `words` or `symbols` target; other targets (characters, bytes, subwords) are cut into words
as the `words` tokenizer would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seqloom.api.datasets import Datasets
from seqloom.api.model import Model
from seqloom.config import kind_of
from seqloom.data.codec import TextCodec
from seqloom.data.tokenizers import Words
from seqloom.errors import SeqloomError
from seqloom.metrics.breakdown import FrequencyRow, word_accuracy_by_frequency

WORD_KINDS = ("words", "symbols")  # target tokenizers whose tokens are words to a person


@dataclass(frozen=True)
class TrainingWords:
    """How to cut a target into words, and how often each stands in the training targets."""

    cut: Callable[[str], list[str]]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, model: Model) -> TrainingWords | None:
        """From the vocabulary where it counted every word, else from the training data; None when that is gone."""
        cut = _cutter(model.target)
        counts = _from_vocabulary(model)
        if counts is None:
            try:
                counts = Counter(
                    word for example in Datasets(model.recipe.data).train() for word in cut(example.target)
                )
            except SeqloomError:  # the report stands without this table
                return None
        return cls(cut, counts)

    def accuracy(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[FrequencyRow, ...]:
        """Of several references, the one that shares most words with the output is what was wanted."""
        produced = [self.cut(output) for output in outputs]
        wanted = []
        for output, texts in zip(produced, references, strict=True):
            has = Counter(output)
            wanted.append(max(map(self.cut, texts), key=lambda words: _f1(Counter(words), has)))
        return tuple(word_accuracy_by_frequency(produced, wanted, self.counts))


def _f1(wanted: Counter[str], produced: Counter[str]) -> float:
    return 2 * (wanted & produced).total() / max(1, wanted.total() + produced.total())


def _cutter(codec: TextCodec) -> Callable[[str], list[str]]:
    tokenizer = codec.tokenizer if _has_words(codec) else Words(Words.Settings())
    return lambda text: [tokenizer.surface(piece) for piece in tokenizer.encode(codec.normalise(text))]


def _has_words(codec: TextCodec) -> bool:
    return kind_of(codec.settings.tokenizer) in WORD_KINDS


def _from_vocabulary(model: Model) -> Counter[str] | None:
    """The vocabulary's own counts, if it dropped no word and is the target's alone."""
    chosen, counts = model.target.settings.vocabulary, model.target.vocabulary.counts
    whole = chosen.max_size is None and chosen.min_count == 1 and not model.recipe.model.one_vocabulary
    if counts is None or not whole or not _has_words(model.target):
        return None
    found: Counter[str] = Counter()
    for piece, count in counts.items():
        found[model.target.tokenizer.surface(piece)] += count
    return found
