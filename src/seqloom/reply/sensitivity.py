"""Messages that no ready-made reply fits: bad news, illness, death, legal matters, money, passwords.

Rules first: phrases by category in every language (`lists/LANGUAGE/sensitive-CATEGORY.txt`, less what `harmless.txt`
says), and numbers of cards and accounts. Then a small classifier, learned from examples in the same folder, for what no
phrase foresaw in a short message; it need not be as sure where a phrase of `doubtful.txt` stands, which is as often
harmless as not. Subject, own words and whatever is forwarded are read whole, not only what a model would see. It
answers with a verdict and never with a change of the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seqloom.errors import SeqloomError, nearest
from seqloom.reply.classifier import Classifier
from seqloom.reply.lists import Lists, read
from seqloom.reply.messages import MOST_TEXT, Message, cleaned
from seqloom.reply.phrases import Phrases, pattern_of, spelled
from seqloom.reply.prepare import Prepared
from seqloom.reply.quotes import Quotes

CATEGORIES = ("death", "illness", "passwords", "money", "legal", "bad news")
ORDINARY = "ordinary"
CLASSIFIER = "classifier"
THRESHOLD = 0.92  # of the classifier; it is weak beside the rules, so it must be sure
DOUBTFUL = 0.7  # the same, beside a doubtful phrase
MOST_WORDS = 60  # of a message that the classifier judges: its examples are short, of a long mail it is sure too soon
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")


@dataclass(frozen=True)
class Verdict:
    """`why` names the category and the phrase, or the classifier and what helped it; it is empty for the rest."""

    sensitive: bool
    why: str


class Sensitivity:
    """Rules and a small classifier; `lists` is a folder of one's own lists, `extra` a file of `category: phrase`."""

    def __init__(self, lists: Path | None = None, extra: Path | None = None) -> None:
        self._lists = Lists(lists)
        self._quotes = Quotes(self._lists)
        added = {category: [] for category in CATEGORIES} if extra is None else _added(extra)
        self._rules = {category: self._phrases(_file(category), added[category]) for category in CATEGORIES}
        self._harmless = self._phrases("harmless", [])
        self._doubtful = self._phrases("doubtful", [])

    def _phrases(self, name: str, more: list[str]) -> Phrases:
        found = list(more)
        for language in self._lists.languages:
            for entry in self._lists.entries(language, name):
                where = str(self._lists.path(language, name))
                found.append(_checked(entry, where))
        return Phrases(found)

    @cached_property
    def _classifier(self) -> Classifier:
        """Learned from the examples of all languages, once."""
        texts, sensitive = [], []
        for language in self._lists.languages:
            for entry in self._lists.entries(language, "sensitive-examples"):
                where = f"{self._lists.path(language, 'sensitive-examples')}"
                kind, separator, text = entry.partition("\t")
                if not separator or kind not in (*CATEGORIES, ORDINARY):
                    what = f"expected a category or {ORDINARY!r}, a tab and a text, got {entry[:40]!r}"
                    raise SeqloomError("E_DATA", what, where=where, fix=f"categories: {', '.join(CATEGORIES)}")
                texts.append(spelled(text))
                sensitive.append(kind != ORDINARY)
        return Classifier(texts, sensitive)

    def __call__(self, prepared: Prepared, message: Message) -> Verdict:
        """Of a message and what was made of it. Where nothing is its author's own, all of it is judged."""
        body = cleaned(message.body[:MOST_TEXT])
        parts = self._quotes.split(body)
        own = self._quotes.without_signature(parts.own)[0]
        text = "\n".join(part for part in (cleaned(message.subject), own or body, parts.forwarded) if part)
        why = self.rule(text)
        if why is None and prepared.text:
            why = self.learned(f"{cleaned(message.subject)}\n{own}")
        return Verdict(why is not None, why or "")

    def learned(self, text: str) -> str | None:
        """`classifier`, with the doubtful phrase that lowered its threshold, where it is sure enough."""
        shown = spelled(text)
        for begin, end in self._harmless.spans(shown):
            shown = shown[:begin] + " " * (end - begin) + shown[end:]
        if sum(word != "." for word in shown.split()) > MOST_WORDS:
            return None
        likely = self._classifier.probability(shown)
        if likely >= THRESHOLD:
            return CLASSIFIER
        doubtful = self._doubtful.first(shown)
        return f"{CLASSIFIER}: {doubtful}" if doubtful is not None and likely >= DOUBTFUL else None

    def rule(self, text: str) -> str | None:
        """`category: phrase` of the first rule that holds."""
        for digits in _CARD.findall(text):
            if _is_card(digits):
                return "money: the number of a card"
        if _IBAN.search(text):
            return "money: the number of an account"
        words = spelled(text)
        harmless = self._harmless.spans(words)
        for category, phrases in self._rules.items():
            if (found := phrases.first(words, harmless)) is not None:
                return f"{category}: {found}"
        return None


def _file(category: str) -> str:
    return "sensitive-" + category.replace(" ", "-")


def _checked(entry: str, where: str) -> str:
    try:
        pattern_of(entry)
    except ValueError as error:
        raise SeqloomError("E_DATA", str(error), where=where) from None
    return entry


def _added(path: Path) -> dict[str, list[str]]:
    """A person's own phrases, by category."""
    found: dict[str, list[str]] = {category: [] for category in CATEGORIES}
    for entry in read(path):
        category, separator, phrase = (part.strip() for part in entry.partition(":"))
        if not separator or category.lower() not in found:
            what = f"expected 'category: phrase', got {entry[:60]!r}{nearest(category, CATEGORIES)}"
            raise SeqloomError("E_DATA", what, where=str(path), fix=f"categories: {', '.join(CATEGORIES)}")
        found[category.lower()].append(_checked(phrase, str(path)))
    return found


def _is_card(digits: str) -> bool:
    """Luhn's check, and a first digit that cards have."""
    numbers = [int(char) for char in digits if char.isdigit()]
    doubled = [sum(divmod(2 * number, 10)) for number in numbers[-2::-2]]
    return numbers[0] in (2, 3, 4, 5, 6) and (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0
