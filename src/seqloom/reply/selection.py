"""Which replies of R fit a message: an encoder-decoder walks the trie of R with a beam.

    score(r) = log P(r | m) - weight * log P(r)

The first term is the model's, summed over the tokens of the canonical reply and its end; the second is how often r was
sent (`ResponseSet.prior`), so that what always fits does not fit everything. A step of the beam costs the same however
many replies the trie holds; with a beam as wide as R all of R is ranked exactly. Nothing here chooses what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from seqloom import config
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.reply.responses import Polarity, Response, ResponseSet
from seqloom.search.strategies import STRATEGIES

WEIGHTS = tuple(step / 20 for step in range(11))  # of log P(r), those that are tried: over a half rare replies win
MOST_TUNED = 4_000  # messages that choose among them


@dataclass(frozen=True)
class Ranked:
    """A response and why it stands where it stands."""

    response: Response
    log_prob: float  # log P(r | m)
    prior: float  # log P(r)
    score: float

    def as_dict(self) -> dict[str, Plain]:
        return {
            "reply": self.response.reply,
            "score": self.score,
            "log_prob": self.log_prob,
            "prior": self.prior,
            "intent": self.response.intent,
            "polarity": self.response.polarity,
        }


@dataclass
class Selection:
    """R ranked by a model, for prepared texts."""

    class Settings(config.Settings):
        beam: int = Field(32, ge=1, le=100_000)  # replies that are found and compared
        weight: float = Field(0.0, ge=0.0, le=2.0)  # of log P(r); training chooses it

    model: Model
    responses: ResponseSet
    settings: Settings = field(default_factory=Settings)
    _options: dict[tuple[str | None, Polarity | None], _Choices] = field(default_factory=dict, init=False, repr=False)

    def rank(
        self, texts: Sequence[str], language: str | None = None, polarity: Polarity | None = None
    ) -> list[list[Ranked]]:
        """For every text at most `beam` responses, the best first; of one language, and of one polarity if asked."""
        choices = self._choices(language, polarity)
        if choices is None:
            return [[] for _ in texts]
        ranked = []
        for prediction in self.model.predict(texts, choices.options):
            found = [] if prediction.skipped else prediction.hypotheses
            fit = [(choices.by_tokens[one.tokens], one.log_prob) for one in found if one.tokens in choices.by_tokens]
            ranked.append(self._ordered(fit))
        return ranked

    def all_ranked(self, text: str, language: str | None = None) -> list[Ranked]:
        """All of R for one text, each reply scored by itself: what `rank` gives with a beam as wide as R."""
        some = self.responses.of(language)
        scores = self.model.score([(text, one.key) for one in some])
        return self._ordered([(one, score.log_prob) for one, score in zip(some, scores, strict=True)])

    def _ordered(self, found: Sequence[tuple[Response, float]]) -> list[Ranked]:
        ranked = []
        for response, log_prob in found:
            prior = self.responses.prior(response)
            ranked.append(Ranked(response, log_prob, prior, log_prob - self.settings.weight * prior))
        return sorted(ranked, key=lambda one: (-one.score, one.response.key))

    def _choices(self, language: str | None, polarity: Polarity | None) -> _Choices | None:
        asked = (language, polarity)
        if asked not in self._options:
            some = [one for one in self.responses.of(language) if polarity in (None, one.polarity)]
            self._options[asked] = _Choices.of(self.model, some, self.settings.beam)
        found = self._options[asked]
        return found if found.by_tokens else None

    def refuse_unspeakable(self, where: Path) -> None:
        """E_DATA for a reply with a word that the model has never seen: it cannot be scored."""
        for one in self.responses:
            odd = [piece for piece in self.model.target.tokens(one.key) if piece not in self.model.target.vocabulary]
            if odd:
                what = f"{one.reply!r} holds {odd[0]!r}, which the model has never seen in a reply"
                fix = "use words of other replies, or train again with this response set (--responses)"
                raise SeqloomError("E_DATA", what, where=str(where), fix=fix)


@dataclass(frozen=True)
class _Choices:
    """Some responses as the model writes them, and the search among them."""

    options: Options
    by_tokens: Mapping[tuple[str, ...], Response]

    @staticmethod
    def of(model: Model, some: Sequence[Response], beam: int) -> _Choices:
        size = max(1, min(beam, len(some)))
        strategy = {"kind": "beam", "size": size, "n_best": size, "stop": "bound", "length": "none"}
        texts = tuple(one.key for one in some)
        longest = max((len(model.target.tokens(text)) for text in texts), default=1)
        return _Choices(
            Options(
                strategy=STRATEGIES.settings(strategy),
                n_best=size,
                one_of=texts or None,
                max_length=max(1, longest),
                split=False,
                on_long="skip",
            ),
            {tuple(model.target.tokens(one.key)): one for one in some},
        )


# --- the weight of log P(r) ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """A weight, and the mean reciprocal rank of the true replies under every weight that was tried."""

    weight: float
    tried: Mapping[float, float]


def tuned(ranked: Sequence[Sequence[Ranked]], truths: Sequence[Response]) -> Tuned:
    """The largest weight that costs nothing measurable: its MRR is within one standard error of the best one's.

    People do answer "Yeah" most of the time, so the best weight alone would be small. Among those that the dev set
    cannot tell apart the largest gives the most specific replies. The error is that of the difference, message by
    message.
    """
    columns = {weight: _reciprocal(ranked, truths, weight) for weight in WEIGHTS}
    means = {weight: float(column.mean()) if len(column) else 0.0 for weight, column in columns.items()}
    best = max(WEIGHTS, key=lambda weight: (means[weight], -weight))
    if not truths:
        return Tuned(0.0, means)
    lost = {weight: columns[best] - columns[weight] for weight in WEIGHTS}
    near = [weight for weight, loss in lost.items() if loss.mean() <= loss.std() / len(loss) ** 0.5]
    return Tuned(max(near), means)


def _reciprocal(
    ranked: Sequence[Sequence[Ranked]], truths: Sequence[Response], weight: float
) -> Float64[np.ndarray, "n"]:
    """1 / place of each true reply under a weight; 0 where the beam did not find it."""
    values = np.zeros(len(truths))
    for row, (found, truth) in enumerate(zip(ranked, truths, strict=True)):
        mine = next((one.log_prob - weight * one.prior for one in found if one.response == truth), None)
        if mine is not None:
            values[row] = 1 / (1 + sum(one.log_prob - weight * one.prior > mine for one in found))
    return values
