"""What of a text goes to a model: extras apart, paragraphs in sentences, over-long texts as asked. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from seqloom.api.asked import Asked
from seqloom.api.predictions import Prediction, doubted, joined
from seqloom.data.codecs import Codecs, Encoded
from seqloom.data.examples import Inputs, named_at
from seqloom.data.sentences import split_sentences
from seqloom.data.source import Cut
from seqloom.errors import SeqloomError

CHUNK_LINES = 4096  # lines that are sorted by length together; bounds memory on endless input
SENTENCES_PER_LINE = 1.2  # a run whose training lines hold more than this learned paragraphs, and gets paragraphs

Piece = tuple[str, dict[str, str]]  # what is answered by itself: a text and the extras of its line


class Answer(Protocol):
    """One prediction per piece, in order."""

    def __call__(self, pieces: Sequence[Piece], /) -> Sequence[Prediction]: ...


@dataclass(frozen=True)
class Place:
    """Where texts stand, for errors: the name of their input, and the number of the first."""

    name: str = ""
    first: int = 1

    def of(self, number: int) -> str:
        return f"{self.name}:{number}" if self.name else f"line {number:,}"


@dataclass(frozen=True)
class _Plan:
    """A line on its way: its source and extras, its pieces with the gap after each, and where it stands."""

    line: str
    extras: dict[str, str]
    parts: list[tuple[str, str]]
    where: str
    fault: SeqloomError | None = None


@dataclass(frozen=True)
class Reader:
    """Lines as pieces that a model can answer, and its answers as answers to lines."""

    codecs: Codecs
    max_source: int  # tokens
    max_extra: int
    sentences_per_line: object  # of the training lines, where that is known
    _cuts: dict[str, Cut] = field(default_factory=dict, init=False, repr=False, compare=False)  # soon to be encoded

    @property
    def splits_sentences(self) -> bool:
        """Did this run learn single sentences of natural text?"""
        learned = self.sentences_per_line
        return (
            self.codecs.source.natural
            and self.codecs.target.natural
            and isinstance(learned, float)
            and learned <= SENTENCES_PER_LINE
        )

    def predictions(
        self, texts: Iterable[Inputs], asked: Asked, answer: Answer, chunk: int, place: Place
    ) -> Iterator[Prediction]:
        """One prediction per text, in order; `chunk` of them are read before the first is answered."""
        iterator = enumerate(texts, start=place.first)
        while lines := list(islice(iterator, chunk)):
            pieces: list[Piece] = []
            plans: list[_Plan] = []
            for number, inputs in lines:
                plan = self._planned(inputs, asked, place.of(number))
                pieces += [(text, plan.extras) for text, _ in plan.parts]
                plans.append(plan)
            answers = iter(answer(pieces))
            for plan in plans:
                yield self._answered(plan, list(islice(answers, len(plan.parts))), asked)

    def _planned(self, inputs: Inputs, asked: Asked, where: str) -> _Plan:
        """What of a line is to be answered; a file that cannot be read has a fault instead, where that is asked for."""
        try:
            return _Plan(*self.read(inputs, asked, where), where)
        except SeqloomError as error:
            if asked.on_bad_file == "error" or not self._of_file(error):
                raise
            return _Plan(*self.codecs.texts(inputs, where), [], where, error)

    def _answered(self, plan: _Plan, parts: list[Prediction], asked: Asked) -> Prediction:
        """The answer to a line; what was found in decoding its file says where it is named."""
        prediction = doubted(joined(plan.line, parts, [gap for _, gap in plan.parts], plan.extras), asked)
        fault = plan.fault or prediction.fault
        if fault is None:
            return prediction
        try:
            with named_at(plan.line, plan.where):
                raise fault
        except SeqloomError as told:
            if asked.on_bad_file == "error":
                raise
            return replace(prediction, fault=told)

    def _of_file(self, error: SeqloomError) -> bool:
        """Is it about the file of one source, so that others may still be answered?"""
        return self.codecs.source.settings.in_files and error.code in ("E_DATA", "E_FILE")

    def refuse_long(self, texts: Iterable[Inputs], asked: Asked, place: Place) -> None:
        """Look for sources over the recipe's maximum, and files that cannot be read, that were not provided for."""
        for number, inputs in enumerate(texts, start=place.first):
            plan = self._planned(inputs, asked, place.of(number))
            if asked.on_bad_file == "error" and self.codecs.source.settings.in_files and plan.line.strip():
                with named_at(plan.line, plan.where):
                    self.codecs.source.cut(plan.line)  # damage shows only where all of a file is read

    def read(self, inputs: Inputs, asked: Asked, where: str) -> tuple[str, dict[str, str], list[tuple[str, str]]]:
        """A line's source, its extras (the same for all of its parts), and its parts with the gaps between them."""
        line, extras = self.codecs.texts(inputs, where)
        self._refuse_long_extras(extras, where)
        with named_at(line, where):
            return line, extras, self._parts(line, asked, where)

    def encoded(self, pieces: Sequence[Piece]) -> tuple[dict[int, Encoded], dict[int, SeqloomError]]:
        """Those that hold something to read, and those whose files cannot be read, by their place."""
        found: dict[int, Encoded] = {}
        faults: dict[int, SeqloomError] = {}
        for place, (text, extras) in enumerate(pieces):
            if not (text.strip() or self.codecs.continues):
                continue
            try:
                inputs = {**extras, "source": text} if extras else text
                read = self.codecs.encode(inputs, self._cuts.pop(text, None))
            except SeqloomError as error:
                if not self._of_file(error):
                    raise
                faults[place] = error
                continue
            if read.own or self.codecs.continues:
                found[place] = read
        return found, faults

    def _refuse_long_extras(self, extras: Mapping[str, str], where: str) -> None:
        for name, text in extras.items():
            count = len(self.codecs.extras[name].tokens(text)) if len(text) > self.max_extra // 8 else 0
            if count > self.max_extra:
                what = f"{name}: {count:,} tokens, the recipe's maximum is {self.max_extra:,}"
                raise SeqloomError("E_LONG", what, where=where, fix="a larger data.limits.max_extra in training")

    def _parts(self, line: str, asked: Asked, where: str) -> list[tuple[str, str]]:
        """What of a line goes to the model one by one, and the white space that follows each."""
        parts = _by_line(line)
        splits = asked.split
        if splits is None:
            splits = self.splits_sentences and not asked.of_the_whole
        if splits and asked.n_best == 1:
            parts = [part for block, gap in parts for part in _sentences(block, gap)]
        fitting = [self._fitting(text, gap, asked, where) for text, gap in parts]
        if any(not shorter for shorter in fitting):  # to be skipped: the whole line, never a part of it
            return []
        return [part for shorter in fitting for part in shorter]

    def _fitting(self, text: str, gap: str, asked: Asked, where: str) -> list[tuple[str, str]]:
        """A text within the recipe's maximum as it is; a longer one as `on_long` says (nothing: it is skipped)."""
        source = self.codecs.source
        in_files = source.settings.in_files
        count = source.length(text) if in_files and text.strip() else self._tokens(text)
        if count <= self.max_source:
            return [(text, gap)]
        if asked.on_long == "skip":
            return []
        if asked.on_long == "split" and not in_files:
            words = text.split(" ")
            if len(words) > 1:
                half = len(words) // 2
                halves = ((" ".join(words[:half]), " "), (" ".join(words[half:]), gap))
                return [shorter for part, after in halves for shorter in self._fitting(part, after, asked, where)]
        most = self.max_source
        what, remedy = f"a source of {count:,} {source.unit}s, the recipe's maximum is {most:,}", "skip"
        if not in_files:
            remedy = "split or --on-long skip"
        if asked.on_long == "split" and not in_files:
            what, remedy = f"a word of {count:,} tokens cannot be split, the recipe's maximum is {most:,}", "skip"
        fix = f"--on-long {remedy}, or a larger data.limits.max_source in training"
        raise SeqloomError("E_LONG", what, where=where, fix=fix)

    def _tokens(self, text: str) -> int:
        """How many tokens a text has, as far as it matters. Where they must be counted, they are kept for a while."""
        if len(text) <= self.max_source // 8 or not text.strip():
            return 0  # surely few
        cut = self.codecs.source.cut(text)
        if len(cut) <= self.max_source:
            if len(self._cuts) >= CHUNK_LINES:  # nobody asked for those: files are looked through before they are read
                self._cuts.clear()
            self._cuts[text] = cut
        return len(cut)


def _by_line(text: str) -> list[tuple[str, str]]:
    """Lines of a text with their breaks, so that breaks are kept."""
    lines = text.split("\n")
    return [(line.removesuffix("\r"), ("\r" if line.endswith("\r") else "") + "\n") for line in lines[:-1]] + [
        (lines[-1], "")
    ]


def _sentences(block: str, gap: str) -> list[tuple[str, str]]:
    """The sentences of one line; the line's own break follows the last."""
    parts = split_sentences(block)
    return [*parts[:-1], (parts[-1][0], parts[-1][1] + gap)]
