"""Several judgments of one item: what is learned from them, and how far the judges agree.

Where an item has several references because several people judged it, they are opinions and not right answers side by
side. Training may take the first, what most say, their mean (of numbers), or each with its share: an item of which
three of five say A teaches A with the weight 3/5, so that the loss is the cross-entropy with the judges' own shares.

    Krippendorff's alpha = 1 - observed / expected disagreement

over all pairs of judgments of one item, against pairs of any items; labels disagree or not, numbers by the square of
their difference (Krippendorff 2011). 1: all agree; 0: no more than by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from seqloom.data.examples import Example
from seqloom.errors import SeqloomError
from seqloom.figures import FIX, no_number, number_in

Judgments = Literal["first", "majority", "mean", "each"]


def learned(examples: Iterable[Example], how: Judgments) -> Iterator[Example]:
    """What training sees of items with several judgments."""
    for example in examples:
        if how == "each" and len(example.references) > 1:
            for text, count in Counter(map(_collapsed, example.references)).items():
                yield replace(example, references=(text,), weight=example.weight * count / len(example.references))
        else:
            yield decided(example, how)


def decided(example: Example, how: Judgments) -> Example:
    """The same item, with what most say standing first (the others stay: metrics know what they are), or their mean."""
    if how == "first" or len(example.references) < 2:
        return example
    if how == "mean":
        numbers = [_number(text, example.where) for text in example.references]
        return replace(example, references=(f"{sum(numbers) / len(numbers):.12g}",))
    counts = Counter(map(_collapsed, example.references))
    first = counts.most_common(1)[0][0]  # of equally frequent ones that which stands first
    return replace(example, references=(first, *_without(example.references, first)))


def _without(references: Sequence[str], first: str) -> list[str]:
    """All but one that is the first, blanks aside."""
    others = list(references)
    del others[[_collapsed(text) for text in others].index(first)]
    return others


def _collapsed(text: str) -> str:
    return " ".join(text.split())


def _number(text: str, where: str) -> float:
    number = number_in(text)
    if number is None:
        raise SeqloomError("E_DATA", f"the judgment {no_number(text)}", where=where, fix=FIX)
    return number


@dataclass(frozen=True)
class Agreement:
    """How far the judges of some items agree; only items with two judgments or more say anything about it."""

    items: int
    judgments: int
    alpha: float | None  # None where all judgments are the same: there is nothing to agree or disagree about
    majority: float | None  # mean share of an item's judges that say what most of them say; None: of numbers
    undecided: int  # items of which no judgment has more voices than all others

    @property
    def line(self) -> str:
        """In words, for people."""
        told = f"{self.judgments / self.items:.1f} judgments on each of {self.items:,} items"
        if self.majority is not None:
            told += f"; {100 * self.majority:.1f} % are what most judges of the item say"
        if self.undecided:
            told += f"; {self.undecided:,} items have no majority"
        return told + ("; all are the same" if self.alpha is None else f"; Krippendorff's alpha {self.alpha:.3f}")


@dataclass
class Judges:
    """Agreement, item by item: sums that add up, whatever the number of items. `numbers`: judgments are numbers."""

    numbers: bool = False
    cut: Callable[[str], Hashable] = _collapsed  # what makes two labels the same one
    items: int = 0
    judgments: int = 0
    _disagreed: float = 0.0  # over pairs within items, each item's by its judges - 1
    _counts: Counter[Hashable] = field(default_factory=Counter)  # of labels over all items
    _sums: tuple[float, float] = (0.0, 0.0)  # of numbers and of their squares
    _shares: float = 0.0
    _undecided: int = 0

    def see(self, row: int, example: Example) -> None:
        """What a survey shows of every row."""
        self.add(example.references)

    def add(self, references: Sequence[str]) -> None:
        if len(references) < 2:
            return
        if self.numbers:
            numbers = [number for text in references if (number := number_in(text)) is not None]
            if len(numbers) < 2:
                return
            total, squares = sum(numbers), sum(number * number for number in numbers)
            self._sums = (self._sums[0] + total, self._sums[1] + squares)
            self._disagreed += 2 * (len(numbers) * squares - total * total) / (len(numbers) - 1)
            self._note(len(numbers))
            return
        counts = Counter(map(self.cut, references))
        judges = len(references)
        self._counts += counts
        self._disagreed += (judges * judges - sum(count * count for count in counts.values())) / (judges - 1)
        (_, most), *others = counts.most_common(2)
        self._shares += most / judges
        self._undecided += bool(others and others[0][1] == most)
        self._note(judges)

    def _note(self, judges: int) -> None:
        self.items += 1
        self.judgments += judges

    def agreement(self) -> Agreement | None:
        """None where no item has several judgments."""
        if not self.items:
            return None
        n = self.judgments
        if self.numbers:
            expected = 2 * (n * self._sums[1] - self._sums[0] ** 2)
        else:
            expected = float(n * n - sum(count * count for count in self._counts.values()))
        alpha = 1 - (n - 1) * self._disagreed / expected if expected > 0 else None
        majority = None if self.numbers else self._shares / self.items
        return Agreement(self.items, n, alpha, majority, self._undecided)


def agreement_of(
    references: Iterable[Sequence[str]], numbers: bool = False, cut: Callable[[str], Hashable] = _collapsed
) -> Agreement | None:
    """How far judges agree on some items; None where none has several judgments."""
    judges = Judges(numbers, cut)
    for wanted in references:
        judges.add(wanted)
    return judges.agreement()
