"""What a reader is: it opens the files that its settings name and yields examples in file order.

A reader keeps texts exactly as they are (normalisation belongs to the codec) and never drops a line silently: what is
skipped is counted in a `Tally`, what is wrong is an error with file:line. This file knows no format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from seqloom import config
from seqloom.data.examples import Example, ExtraName, links_of, weight_of
from seqloom.data.files import BadUtf8, Tally, decoded, raw_lines
from seqloom.errors import SeqloomError

FilePath = Annotated[str, Field(min_length=1)]


class ReaderSettings(config.Settings):
    """What every dataset may say; `PairSettings` adds what only files of pairs have a place for."""

    kind: str
    constants: Mapping[ExtraName, str] = {}  # extras that are the same throughout: {lang: "<2de>"}
    importance: float = Field(default=1.0, ge=0.0)  # how much each of its pairs counts in the loss (times its weight)
    share: float | None = Field(default=None, gt=0.0)  # of the pairs of an epoch, where `train` is a list

    @property
    def extra_names(self) -> tuple[str, ...]:
        """The extras that its examples have."""
        return tuple(self.constants)

    @property
    def flows(self) -> bool:
        """Are its examples pieces of one text, with nothing between them?"""
        return False


class PairSettings(ReaderSettings):
    """Each format of pairs says in its own way where extras, weights and alignments stand."""

    extras: Mapping[ExtraName, object] = {}  # further sources by name

    @property
    def extra_names(self) -> tuple[str, ...]:
        return (*self.extras, *self.constants)

    @model_validator(mode="after")
    def _each_once(self) -> PairSettings:
        if twice := [name for name in self.constants if name in self.extras]:
            raise ValueError(f"constants: {', '.join(twice)} stands in `extras` as well")
        return self


Refuse = Callable[[SeqloomError], None]  # what becomes of a line that has not the promised form


def raised(error: SeqloomError) -> None:
    raise error


class Reader(ABC):
    """Opens the files its settings name and yields examples in file order, in constant memory."""

    Settings: type[ReaderSettings]
    path_keys: ClassVar[tuple[str, ...]] = ("path",)  # the settings that name files

    def __init__(self, settings: ReaderSettings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        self.base, self.on_bad_utf8, self.tally = base, on_bad_utf8, tally
        self.constants, self.importance = settings.constants, settings.importance
        self.refuse: Refuse = raised

    @abstractmethod
    def examples(self) -> Iterator[Example]: ...

    def _texts(self, path: str) -> Iterator[tuple[int, str]]:
        """Line numbers and texts of one file, skipped lines left out."""
        for line in raw_lines(path):
            text = decoded(line, path, self.on_bad_utf8, self.tally)
            if text is not None:
                yield line.number, text

    def _made(self, path: str, make: Callable[[str, int], Example]) -> Iterator[Example]:
        """An example of every line; one that has not the promised form is refused."""
        for number, text in self._texts(path):
            try:
                example = make(text, number)
            except SeqloomError as error:
                self.refuse(error)
            else:
                yield example

    def _example(self, example: Example, weight: object = None, alignment: str | None = None) -> Example:
        """The example with its weight, its alignment (None where the dataset has none) and the dataset's constants."""
        if weight is None and alignment is None and not self.constants and self.importance == 1:
            return example
        weighed = 1.0 if weight is None else weight_of(weight, example.where)
        return Example(
            example.source,
            example.references,
            example.file,
            example.line,
            {**example.extras, **self.constants},
            weighed * self.importance,
            None if alignment is None else links_of(alignment, example.source, example.target, example.where),
        )
