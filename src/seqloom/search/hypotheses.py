"""What search returns, and how a hypothesis is scored by its length.

`length` is the one place that says what T counts. A normalisation divides the summed log-probability by a function of
T, so that long hypotheses are not punished for being long. Nothing here searches, and nothing here knows strings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from seqloom import config
from seqloom.config import Table
from seqloom.specials import EOS

if TYPE_CHECKING:  # an output has a length without torch
    from seqloom.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output of search: `tokens` without BOS and EOS, and what the model thinks of them.

    `token_log_probs` has one entry per token and, if the hypothesis ended, one more for EOS. `log_prob` is their sum:
    untempered and unmasked, so it equals forced decoding. `score` is what hypotheses are ranked by: the normalisation
    of `log_prob` + `advice`, where advice is what others (a weighted language model) added. A `truncated` hypothesis
    never ended: the limit, or a constraint that left it no token, cut it off.
    """

    tokens: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    log_prob: float
    score: float
    truncated: bool
    advice: float = 0.0


def length(tokens: Sequence[int]) -> int:
    """T of length normalisation: the tokens without EOS, and at least 1 so that an empty output has a score.

    EOS is left out as in the lecture: "he threw a pie" has log p = -3.2 and T = 4, so it scores -0.8.
    """
    return max(1, sum(token != EOS for token in tokens))


class Normalisation(ABC):
    """score = log_prob / divisor(T). The divisor is positive and never falls as T grows: `bound` rests on that."""

    end: ClassVar[int] = 0  # how many tokens the end of an output counts

    @abstractmethod
    def divisor(self, lengths: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]: ...

    def counted(self, tokens: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """T of hypotheses that have ended after so many `tokens`: at least 1, as `length` says, and the end's share."""
        return (tokens + self.end).clamp(min=1)

    def score(self, log_probs: Float[Tensor, "*shape"], tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Scores of hypotheses with so many `tokens` (EOS left out)."""
        return log_probs / self.divisor(self.counted(tokens).to(log_probs.dtype))

    def live(self, log_probs: Float[Tensor, "*shape"], tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Scores of hypotheses that have not ended: the same, where T does not count the end."""
        return self.score(log_probs, tokens)

    def log_prob(self, scores: Float[Tensor, "*shape"], tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """What had this score: the inverse of `score`."""
        return scores * self.divisor(self.counted(tokens).to(scores.dtype))

    def bound(self, log_probs: Float[Tensor, "*shape"], limits: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The best score that a live hypothesis can still reach within its limit of tokens.

        Every further token adds a log-probability <= 0, so log_prob can only fall; the divisor can only grow, at most
        to its value at the limit. Hence score <= log_prob / divisor(limit), reached if all further tokens were certain.
        """
        return self.score(log_probs, limits)


class Unnormalised(Normalisation):
    """score = log_prob: the probability of the whole output. It favours short ones."""

    class Settings(config.Settings):
        kind: Literal["none"] = "none"

    def __init__(self, settings: Settings) -> None: ...

    def divisor(self, lengths: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return lengths**0  # one, of whatever kind lengths are


class Mean(Normalisation):
    """score = log_prob / T: the mean log-probability of a token."""

    class Settings(config.Settings):
        kind: Literal["mean"] = "mean"

    def __init__(self, settings: Settings) -> None: ...

    def divisor(self, lengths: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return lengths


class Gnmt(Normalisation):
    """score = log_prob / ((5 + T) / 6)^alpha (Wu et al. 2016, equation 14): between none (0) and nearly mean (1)."""

    class Settings(config.Settings):
        kind: Literal["gnmt"] = "gnmt"
        alpha: float = Field(default=0.6, ge=0, le=10)

    def __init__(self, settings: Settings) -> None:
        self.alpha = settings.alpha

    def divisor(self, lengths: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return ((5 + lengths) / 6) ** self.alpha


class Power(Normalisation):
    """score = log_prob / T^alpha, T with the end counted as a token: as Marian and Hugging Face rank outputs."""

    end = 1

    class Settings(config.Settings):
        kind: Literal["power"] = "power"
        alpha: float = Field(default=1.0, ge=0, le=10)

    def __init__(self, settings: Settings) -> None:
        self.alpha = settings.alpha

    def live(self, log_probs: Float[Tensor, "*shape"], tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.score(log_probs, tokens - self.end)

    def divisor(self, lengths: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return lengths**self.alpha


LENGTHS: Table[Normalisation] = Table("lengths", {"none": Unnormalised, "mean": Mean, "gnmt": Gnmt, "power": Power})
