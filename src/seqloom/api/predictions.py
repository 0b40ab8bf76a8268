"""What a model answers: texts with tokens, scores and an honest confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from seqloom.config import Plain
from seqloom.data.codecs import Encoded
from seqloom.errors import SeqloomError
from seqloom.metrics.calibration import Calibration


@dataclass(frozen=True)
class Output:
    """One hypothesis as a person reads it."""

    text: str
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]  # log-probability of each token, and of the end where it ended
    log_prob: float  # their sum: the model's own
    score: float  # what search maximised
    truncated: bool

    def as_dict(self) -> dict[str, Plain]:
        return {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_scores": list(self.token_scores),
            "truncated": self.truncated,
        }


@dataclass(frozen=True)
class Prediction:
    """The answer to one source: the best hypothesis, the others, and how far to trust it."""

    source: str
    hypotheses: tuple[Output, ...]
    confidence: float  # the calibrated probability that the answer is right
    unknown: float = 0.0  # share of the source's tokens that the model has never seen
    length: int = 0  # of the source, in tokens
    skipped: bool = False  # an empty or over-long line that was passed over
    extras: Mapping[str, str] = field(default_factory=dict)  # what was asked besides the source
    fault: SeqloomError | None = None  # why the file that is the source could not be read

    @property
    def best(self) -> Output:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def score(self) -> float:
        return self.best.score

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.best.tokens

    @property
    def token_scores(self) -> tuple[float, ...]:
        return self.best.token_scores

    def as_dict(self) -> dict[str, Plain]:
        return {
            "source": self.source,
            **({"extras": dict(self.extras)} if self.extras else {}),
            "text": self.text,
            "confidence": self.confidence,
            "unknown": self.unknown,
            "skipped": self.skipped,
            **({} if self.fault is None else {"error": self.fault.line}),
            "hypotheses": [output.as_dict() for output in self.hypotheses],
        }

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Prediction({self.text!r}, score={self.score:.3f}, confidence={self.confidence:.2f})"

    def _repr_html_(self) -> str:
        """For notebooks: the answer, and each token shaded by its probability."""
        cells = "".join(
            f'<span title="log p = {score:.3f}" style="background:rgba(0,114,178,{0.5 * min(1.0, -score / 3):.2f});'
            f'padding:0 .15em">{escape(token)}</span> '
            for token, score in zip(self.tokens, self.token_scores, strict=False)
        )
        return (
            f"<div><b>{escape(self.text)}</b> <small>confidence {self.confidence:.2f}, "
            f"score {self.score:.3f}</small><br>{cells}</div>"
        )


def answered(
    text: str,
    extras: Mapping[str, str],
    encoded: Encoded,
    outputs: Sequence[Output],
    calibration: Calibration,
) -> Prediction:
    """Outputs for one encoded text as its answer."""
    confidence = calibration.confidence(outputs[0].log_prob, len(outputs[0].tokens))
    length = len(encoded.source)
    unknown = encoded.unknown / max(1, length)
    return Prediction(text, tuple(outputs), confidence, unknown, length, extras=extras)


EMPTY = Output(text="", tokens=(), token_scores=(), log_prob=0.0, score=0.0, truncated=False)


def passed_over(source: str, extras: Mapping[str, str], fault: SeqloomError | None = None) -> Prediction:
    """The answer to a line that is not for the model: nothing, so that lines in are lines out."""
    return Prediction(source, (EMPTY,), confidence=0.0, skipped=True, extras=extras, fault=fault)


def joined(source: str, parts: list[Prediction], gaps: list[str], extras: Mapping[str, str]) -> Prediction:
    """The answers to the sentences of one line as one answer; white space between them as it was."""
    if not parts:
        return passed_over(source, extras)
    if len(parts) == 1 and not gaps[0]:
        return parts[0]
    outputs = [part.best for part in parts]
    whole = Output(
        text="".join(output.text + gap for output, gap in zip(outputs, gaps, strict=True)),
        tokens=tuple(token for output in outputs for token in output.tokens),
        token_scores=tuple(score for output in outputs for score in output.token_scores),
        log_prob=sum(output.log_prob for output in outputs),
        score=sum(output.score for output in outputs) / max(1, len(outputs)),
        truncated=any(output.truncated for output in outputs),
    )
    confidence = 1.0
    for part in parts:
        confidence *= 1.0 if part.skipped else part.confidence
    length = sum(part.length for part in parts)
    unknown = sum(part.unknown * part.length for part in parts) / max(1, length)
    return Prediction(source, (whole,), confidence, unknown, length, all(part.skipped for part in parts), extras)
