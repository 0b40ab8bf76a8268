"""What a person is asked about an output, what can be answered, and what an answer is worth.

The lectures ask three things: is it adequate, is it fluent (yes or no), which is better (rank)? Besides these: levels
from 1 to 5, direct assessment from 0 to 100 (Graham et al. 2013), and errors marked on the text as minor or major
(as in MQM; Freitag et al. 2021). A new question is one line in the table. Nothing here is shown or saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from seqloom.errors import SeqloomError, nearest
from seqloom.metrics.agreement import Level

Span = Mapping[str, int | str]  # {"start": 3, "end": 8, "severity": "minor"}, in characters of the output
Answer = bool | int | Sequence[Span]
LEVELS, MOST = 5, 100
MINOR, MAJOR = 1, 5  # what an error costs
WORTHLESS = 10  # the cost of errors beyond which an output is worth nothing
MOST_SPANS = 200


@dataclass(frozen=True)
class Shown:
    """What an answer is about: a text, and how many outputs stand beside each other."""

    text: str
    outputs: int


class Form(ABC):
    """One way to answer. `checked` says in plain words (ValueError) what cannot be."""

    kind: ClassVar[str]  # what the page draws
    level: ClassVar[Level]  # of the scale, for agreement
    unit: ClassVar[str]  # of `number`, for tables
    drift: ClassVar[float]  # how far apart in worth two answers to the same may be without being careless

    @abstractmethod
    def checked(self, value: object, shown: Shown) -> Answer:
        """The value, if it is an answer to what was shown."""

    @abstractmethod
    def number(self, answer: Answer) -> float:
        """For means: higher is better."""

    @abstractmethod
    def worth(self, answer: Answer, outputs: int) -> float:
        """From 0, as bad as can be said, to 1."""


class YesNo(Form):
    kind, level, unit, drift = "yes", "nominal", "% yes", 0.5

    def checked(self, value: object, shown: Shown) -> Answer:
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return value

    def number(self, answer: Answer) -> float:
        return 100.0 if answer else 0.0

    def worth(self, answer: Answer, outputs: int) -> float:
        return 1.0 if answer else 0.0


class Whole(Form):
    """Whole numbers from `low` to an end."""

    low: ClassVar[int]

    @abstractmethod
    def high(self, outputs: int) -> int:
        """The end."""

    def checked(self, value: object, shown: Shown) -> Answer:
        high = self.high(shown.outputs)
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= high:
            raise ValueError(f"expected a whole number from {self.low} to {high}")
        return value

    def number(self, answer: Answer) -> float:
        assert isinstance(answer, int)
        return float(answer)

    def worth(self, answer: Answer, outputs: int) -> float:
        return (self.number(answer) - self.low) / max(1, self.high(outputs) - self.low)


class Levels(Whole):
    kind, level, unit, drift, low = "levels", "ordinal", "1 to 5", 0.375, 1

    def high(self, outputs: int) -> int:
        return LEVELS


class Direct(Whole):
    kind, level, unit, drift, low = "slider", "interval", "0 to 100", 0.25, 0

    def high(self, outputs: int) -> int:
        return MOST


class Place(Whole):
    """A place among the outputs of an item: 1 is the best, and two may share one. Means are of comparisons won."""

    kind, level, unit, drift, low = "rank", "nominal", "% won", 0.5, 1

    def high(self, outputs: int) -> int:
        return outputs

    def worth(self, answer: Answer, outputs: int) -> float:
        return 1.0 - super().worth(answer, outputs)


class Errors(Form):
    """Parts of the output, each a minor or a major error; an empty list says that there is none.

    A span without length at the end of the text says that something is missing.
    """

    kind, level, unit, drift = "spans", "interval", "minus errors", 0.5

    def checked(self, value: object, shown: Shown) -> Answer:
        if not isinstance(value, list) or len(value) > MOST_SPANS:
            raise ValueError(f"expected a list of at most {MOST_SPANS} spans")
        spans = sorted((self._span(item, len(shown.text)) for item in value), key=lambda span: (span[0], span[1]))
        if any(later[0] < before[1] or later[:2] == before[:2] for before, later in pairwise(spans)):
            raise ValueError("two spans overlap")
        return [{"start": start, "end": end, "severity": severity} for start, end, severity in spans]

    def _span(self, item: object, length: int) -> tuple[int, int, str]:
        wrong = ValueError(f"expected spans with start and end within 0 to {length}, and severity minor or major")
        if not isinstance(item, dict) or set(item) != {"start", "end", "severity"}:
            raise wrong
        start, end, severity = item["start"], item["end"], item["severity"]
        if type(start) is not int or type(end) is not int or severity not in ("minor", "major"):
            raise wrong
        if not (0 <= start < end <= length or start == end == length):
            raise wrong
        return start, end, severity

    def number(self, answer: Answer) -> float:
        assert isinstance(answer, Sequence)
        return -float(sum(MAJOR if span["severity"] == "major" else MINOR for span in answer))

    def worth(self, answer: Answer, outputs: int) -> float:
        return max(0.0, 1 + self.number(answer) / WORTHLESS)


@dataclass(frozen=True)
class Question:
    """One thing that is asked of every output."""

    name: str
    title: str
    asks: str
    form: Form

    def told(self) -> dict[str, str]:
        """For the page."""
        return {"name": self.name, "title": self.title, "asks": self.asks, "kind": self.form.kind}


_ADEQUATE = "Does it say what the source says, all of it and nothing else?"
_FLUENT = "Is it good language, whatever it says?"
QUESTIONS: dict[str, Question] = {
    one.name: one
    for one in (
        Question("adequate", "Adequate", _ADEQUATE, YesNo()),
        Question("fluent", "Fluent", _FLUENT, YesNo()),
        Question("adequacy", "Adequacy", "How much of what the source says does it say? 5: all, 1: nothing", Levels()),
        Question("fluency", "Fluency", "How good is the language? 5: flawless, 1: not to be understood", Levels()),
        Question("direct", "Quality", "How well does it say what the source says? 100: perfectly", Direct()),
        Question("errors", "Errors", "Mark what is wrong: minor, or major where the meaning suffers", Errors()),
        Question("rank", "Place", "Which is better? 1 is the best; equals may share a place", Place()),
    )
}


def chosen(text: str | None, systems: int) -> tuple[Question, ...]:
    """`adequate,fluent,rank` as questions; by default the lectures'. E_USAGE where one cannot be asked."""
    usual = "adequate,fluent,rank" if systems > 1 else "adequate,fluent"
    names = list(dict.fromkeys(word.strip() for word in (text or usual).split(",")))
    for name in names:
        if name not in QUESTIONS:
            what = f"no such question: {name!r}{nearest(name, QUESTIONS)}"
            raise SeqloomError("E_USAGE", what, where="--questions", fix=f"any of {', '.join(QUESTIONS)}")
        if QUESTIONS[name].form.kind == "rank" and systems < 2:
            what = "one system alone has no rank"
            raise SeqloomError("E_USAGE", what, where="--questions rank", fix="name two systems or more")
    asked = [QUESTIONS[name] for name in names]
    return tuple(sorted(asked, key=lambda question: question.form.kind != "spans"))  # errors first: they make one read
