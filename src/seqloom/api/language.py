"""How good a language model is: perplexity by token and by word, bits by character, and what it prefers.

Every text is scored from its first token to its end. Numbers by token depend on how a text is cut; those by word and by
character do not, so that models with other tokens can be compared, as long as nothing is unknown to them.

    PP = P(text)^(-1/N), N tokens (the end of each text among them) or N words (each text's end counted as one)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from seqloom.api.load import model_settings
from seqloom.api.model import Model
from seqloom.api.score import score_examples
from seqloom.config import Plain
from seqloom.data.readers import Example
from seqloom.data.windows import judged
from seqloom.errors import SeqloomError
from seqloom.metrics.ngrams import NGrams
from seqloom.metrics.perplexity import perplexity
from seqloom.specials import BOS, EOS, UNK


@dataclass(frozen=True)
class LanguageEvaluation:
    """What texts cost a model: sums, and the quotients that people compare."""

    name: str
    texts: int
    tokens: int  # ends of texts among them, where a text has one
    words: int  # between blanks; ends of texts among them, as they are among the tokens
    characters: int
    log_prob: float
    unknown: int  # tokens that the vocabulary lacks

    @property
    def nll(self) -> float:
        """Nats by token."""
        return -self.log_prob / max(1, self.tokens)

    @property
    def perplexity(self) -> float:
        return perplexity(-self.log_prob, self.tokens)

    @property
    def word_perplexity(self) -> float:
        return perplexity(-self.log_prob, self.words)

    @property
    def bits_per_character(self) -> float:
        return -self.log_prob / math.log(2) / max(1, self.characters)

    def as_dict(self) -> dict[str, Plain]:
        measured = {
            name: getattr(self, name) for name in ("nll", "perplexity", "word_perplexity", "bits_per_character")
        }
        return {**asdict(self), **{name: value if math.isfinite(value) else None for name, value in measured.items()}}


def evaluate_language(model: Model, examples: Sequence[Example]) -> LanguageEvaluation:
    """Score texts; those of a run that was trained in windows as one long text, each part after what stands before."""
    _check(model)
    flowing = model.recipe.batching.window is not None
    measure = _in_windows if flowing else _one_by_one
    tokens, log_prob, unknown = measure(model, examples)
    return replace(_of_texts(model.name, model, examples), tokens=tokens, log_prob=log_prob, unknown=unknown)


def _of_texts(name: str, model: Model, examples: Sequence[Example]) -> LanguageEvaluation:
    """What of an evaluation depends on the texts alone."""
    ends = 0 if _flows(model) else len(examples)
    return LanguageEvaluation(
        name=name,
        texts=len(examples),
        tokens=0,
        words=sum(len(example.target.split()) for example in examples) + ends,
        characters=sum(len(model.target.normalise(example.target)) for example in examples),
        log_prob=0.0,
        unknown=0,
    )


def _check(model: Model) -> None:
    if not model.codecs.continues:
        raise SeqloomError("E_USAGE", f"{model.name} is no language model", fix="a run with model.kind: language")


def _flows(model: Model) -> bool:
    return any(one.flows for one in model.recipe.data.sets["train"])


def _one_by_one(model: Model, examples: Sequence[Example]) -> tuple[int, float, int]:
    tokens, log_prob, unknown = 0, 0.0, 0
    for score in score_examples(model, examples):
        tokens, log_prob = tokens + len(score.token_scores), log_prob + score.log_prob
        unknown += model.target.vocabulary.unknown(model.target.tokens(score.target))
    return tokens, log_prob, unknown


@torch.inference_mode()
def _in_windows(model: Model, examples: Sequence[Example]) -> tuple[int, float, int]:
    end = [] if _flows(model) else [EOS]
    text = np.array(
        [token for example in examples for token in (*model.target.encode(example.target), *end)], dtype=np.int64
    )
    batching, total = model.recipe.batching, 0.0
    assert batching.window is not None
    for batch in judged(text, batching.window, batching.budget):
        with model.precision():
            total -= float(model.network.nll(batch.to(model.device)).double().sum())
    return len(text), total, int((text == UNK).sum())


def evaluate_ngrams(
    model: Model, order: int, train: Iterable[Example], examples: Sequence[Example]
) -> LanguageEvaluation:
    """The same texts by counts of the training texts, cut into the same tokens: what the model must be better than."""
    _check(model)
    flows = _flows(model)

    def texts(given: Iterable[Example]) -> Iterator[list[int]]:
        ids = (model.target.encode(example.target) for example in given)
        if not flows:
            return ([*one, EOS] for one in ids)
        return iter([[token for one in ids for token in one]])

    counted = NGrams(texts(train), order, len(model.target.vocabulary), BOS)
    asked = list(texts(examples))
    return replace(
        _of_texts(f"{order}-grams", model, examples),
        tokens=sum(map(len, asked)),
        log_prob=sum(map(counted.log_prob, asked)),
        unknown=sum(one.count(UNK) for one in asked),
    )


# --- what it prefers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preference:
    """How often the better of two texts is the likelier one; `group` is what the pairs say of themselves."""

    group: str
    pairs: int
    right: int  # a tie is no preference

    @property
    def accuracy(self) -> float:
        return 100 * self.right / max(1, self.pairs)

    def as_dict(self) -> dict[str, Plain]:
        return {**asdict(self), "accuracy": self.accuracy}


def contrasts(model: Model, triples: Iterable[tuple[str, str, str]]) -> list[Preference]:
    """Of (good text, bad text, group): is the good one likelier? All first, then by group: kind, distance of words."""
    _check(model)
    given = list(triples)
    scores = model.score([("", text) for good, bad, _ in given for text in (good, bad)])
    log_probs = np.array([score.log_prob for score in scores]).reshape(-1, 2)
    right = log_probs[:, 0] > log_probs[:, 1]
    groups: dict[str, list[bool]] = defaultdict(list)
    for (_, _, group), won in zip(given, right.tolist(), strict=True):
        groups[group].append(won)
    found = [Preference("all", len(given), int(right.sum()))]
    if set(groups) - {""}:
        found += [Preference(name, len(groups[name]), sum(groups[name])) for name in sorted(groups, key=_order)]
    return found


def _order(name: str) -> tuple[bool, float, str]:
    """Numbers by their value, before other names."""
    number = name.isdecimal()
    return (not number, float(name) if number else 0.0, name)


def last_words(model: Model, texts: Sequence[str]) -> Preference:
    """How often the last word of a text is what the model goes on with after all words before it (as in LAMBADA)."""
    _check(model)
    cut = list(_cut(texts))
    answers = model([before for before, _ in cut], beam=1)
    right = sum(_next_word(answer.text, before) == last for answer, (before, last) in zip(answers, cut, strict=True))
    return Preference("last word", len(cut), right)


def _cut(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All but the last word with the blank behind it, and that word."""
    for text in texts:
        words = text.split()
        if len(words) > 1:
            yield " ".join(words[:-1]) + " ", words[-1]


def _next_word(text: str, before: str) -> str:
    """The first word that was added to a text."""
    added = text.removeprefix(before).removeprefix(before.rstrip()).split()
    return added[0] if added else ""


def completes(run: str | Path) -> bool:
    """Is this the folder of a language model, which can go on with nothing but a prefix?"""
    model = model_settings(run)
    return model is not None and model.continues
