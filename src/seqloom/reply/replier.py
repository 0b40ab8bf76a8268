"""From a message to suggestions, or to none and the reason: preprocess, gate, trigger, selection, diversity.

`Replier.suggest` says all that led to its answer; what a person or a page shows of it is theirs to choose. Nothing here
sends anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.config import Plain
from seqloom.reply.diversity import chosen
from seqloom.reply.messages import Message, read_chat
from seqloom.reply.prepare import Prepared, Preprocess
from seqloom.reply.responses import Polarity, ResponseSet
from seqloom.reply.selection import Ranked, Selection
from seqloom.reply.sensitivity import Sensitivity, Verdict
from seqloom.reply.settings import ReplySettings
from seqloom.reply.trigger import Trigger

RANKING = 10  # places of the ranking that are told


@dataclass(frozen=True)
class Suggestions:
    """The answer to one message, and how it came about. `reason` says why there is none."""

    message: Message
    prepared: Prepared
    suggestions: tuple[Ranked, ...] = ()
    reason: str | None = None
    verdict: Verdict | None = None  # None: it was not asked
    probability: float | None = None  # that a short reply is wanted
    threshold: float = 0.0
    ranking: tuple[Ranked, ...] = ()  # the first places

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(one.response.reply for one in self.suggestions)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def as_dict(self) -> dict[str, Plain]:
        """Everything, for a page or a program."""
        verdict = self.verdict
        return {
            "suggestions": [one.as_dict() for one in self.suggestions],
            "reason": self.reason,
            "language": self.prepared.language,
            "text": self.prepared.text,
            "steps": [{"name": one.name, "text": one.text, "note": one.note} for one in self.prepared.steps],
            "sensitive": None if verdict is None else {"sensitive": verdict.sensitive, "why": verdict.why},
            "trigger": None
            if self.probability is None
            else {"probability": self.probability, "threshold": self.threshold},
            "ranking": [one.as_dict() for one in self.ranking],
        }


@dataclass
class Replier:
    """A trained Smart Reply: `replier.suggest("Are you coming tonight?")`."""

    preprocess: Preprocess
    sensitivity: Sensitivity
    trigger: Trigger
    selection: Selection
    settings: ReplySettings
    home: Path | None = None

    @property
    def responses(self) -> ResponseSet:
        return self.selection.responses

    @property
    def threshold(self) -> float:
        """Of the trigger: that of the settings where they have one, otherwise as training chose it."""
        return self.trigger.threshold if self.settings.threshold is None else self.settings.threshold

    def suggest(self, message: Message | str, anyway: bool = False) -> Suggestions:
        """At most three replies of R; `anyway` ranks them also where the trigger would not (to explain, to measure).

        A text is read as a chat message; `read_mail` makes a message of a mail.
        """
        return self.suggest_all([message], anyway)[0]

    def suggest_all(self, messages: Sequence[Message | str], anyway: bool = False) -> list[Suggestions]:
        """The same for several messages, ranked together, which is faster."""
        return self.answers(self.judged(messages), anyway)

    def judged(self, messages: Sequence[Message | str]) -> list[Suggestions]:
        """As far as the rules go: what they stop has a reason, the rest waits for `answers`."""
        return [self._judged(read_chat(one) if isinstance(one, str) else one) for one in messages]

    def _judged(self, message: Message) -> Suggestions:
        prepared = self.preprocess(message)
        if prepared.reason is not None:
            return Suggestions(message, prepared, reason=prepared.reason)
        verdict = self.sensitivity(prepared, message)
        reason = f"the message seems sensitive: {verdict.why}" if verdict.sensitive else None
        return Suggestions(message, prepared, reason=reason, verdict=verdict)

    def answers(self, judged: Sequence[Suggestions], anyway: bool = False) -> list[Suggestions]:
        """Those that rules did not stop, through trigger, selection and diversity."""
        done = list(judged)
        open_ = [place for place, one in enumerate(done) if one.reason is None]
        wanted: dict[str | None, list[int]] = {}
        texts = [done[place].prepared.text for place in open_]
        for place, probability in zip(open_, self.trigger.probability(texts) if texts else [], strict=True):
            done[place] = self._triggered(done[place], probability)
            if anyway or done[place].reason is None:
                wanted.setdefault(done[place].prepared.language, []).append(place)
        for language, places in wanted.items():
            ranked = self.selection.rank([done[place].prepared.text for place in places], language)
            for place, found in zip(places, ranked, strict=True):
                done[place] = self._chosen(done[place], found, anyway)
        return done

    def _triggered(self, one: Suggestions, probability: float) -> Suggestions:
        reason = None
        if probability < self.threshold:
            reason = f"a short reply is not likely enough ({probability:.2f}, asked for are {self.threshold:.2f})"
        return Suggestions(one.message, one.prepared, (), reason, one.verdict, probability, self.threshold)

    def _chosen(self, one: Suggestions, ranked: Sequence[Ranked], anyway: bool) -> Suggestions:
        text, language = one.prepared.text, one.prepared.language

        def others(polarity: Polarity) -> Sequence[Ranked]:
            return self.selection.rank([text], language, polarity)[0]

        shown = () if one.reason is not None and not anyway else tuple(chosen(ranked, others, self.settings.shown))
        reason = one.reason
        if not ranked:
            reason = f"the response set has no replies for messages in {language!r}"
        first = tuple(ranked[:RANKING])
        return Suggestions(one.message, one.prepared, shown, reason, one.verdict, one.probability, one.threshold, first)
