"""The sets of a run: which files train, dev and test are read from, and what is held out where one is missing.

Nothing is read here: `readers.py` does that, `filters.py` and `mixing.py` say what becomes of what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from seqloom.config import Settings
from seqloom.data.files import BadUtf8
from seqloom.data.filters import Limits as PairLimits
from seqloom.data.judgments import Judgments
from seqloom.data.mixing import Mixing, Mixture
from seqloom.data.readers import Dataset, Datasets, ReaderSettings, files_of

Share = Annotated[float, Field(gt=0.0, le=0.4)]


class Split(Settings):
    """What is held out of `train` where no file is given. Null: chosen from the size of the data, once."""

    dev: Share | None = None
    test: Share | None = None
    seed: int = Field(1, ge=0, lt=2**63)


class Data(Settings):
    """Where the pairs are. Paths are relative to where the command is typed."""

    train: Datasets  # one dataset, or a list of them: mixed by their `share`, by `mixing`, or as they come
    dev: Dataset | None = None
    test: Dataset | None = None
    judgments: Judgments = "first"  # of several references: the first is learned, what most say, the mean, or each
    mixing: Mixing = Mixing()
    split: Split = Split()
    portion: float = Field(1.0, gt=0.0, le=1.0)  # of the training pairs: what would fewer of them have taught?
    in_files: bool = False  # lines name the files of their sources, relative to their own; as the kind of source has it
    limits: PairLimits = PairLimits()
    on_bad_utf8: BadUtf8 = "error"

    @property
    def sets(self) -> dict[str, tuple[ReaderSettings, ...]]:
        """The datasets of every set that is given; only `train` can have several."""
        train = self.train if isinstance(self.train, tuple) else (self.train,)
        given = {"train": train, "dev": (self.dev,), "test": (self.test,)}
        return {name: tuple(one for one in sets if one is not None) for name, sets in given.items() if any(sets)}

    def with_sets(self, change: Callable[[ReaderSettings, str, int], ReaderSettings]) -> Data:
        """The same with every dataset put through `change(dataset, set, its number there)`."""
        changed: dict[str, object] = {}
        for name, sets in self.sets.items():
            new = tuple(change(one, name, number) for number, one in enumerate(sets))
            changed[name] = new if name == "train" and isinstance(self.train, tuple) else new[0]
        return self.with_(**changed)

    def files(self) -> dict[str, list[str]]:
        """The files of every set that is given."""
        return {name: [path for one in sets for path in files_of(one)] for name, sets in self.sets.items()}

    def mixture(self, sizes: Sequence[int]) -> Mixture | None:
        """How corpora of these sizes are mixed; nothing where an epoch is every pair once."""
        shares = [one.share for one in self.sets["train"]]
        if self.mixing.temperature is None and not any(shares):
            return None
        return Mixture([*sizes, *[0] * (len(shares) - len(sizes))], shares, self.mixing.temperature)

    @model_validator(mode="after")
    def _a_portion_is_of_pairs(self) -> Data:
        if self.portion < 1 and any(one.flows for one in self.sets["train"]):
            raise ValueError("portion: one long text is not drawn from line by line; give a shorter file")
        return self

    @model_validator(mode="after")
    def _mixes(self) -> Data:
        train = self.sets["train"]
        shares = [one.share for one in train if one.share is not None]
        if len(train) < 2 and (shares or self.mixing.temperature is not None):
            raise ValueError("train: one dataset alone is not mixed; leave share and mixing out, or give a list")
        if shares and self.mixing.temperature is not None:
            raise ValueError("mixing.temperature: shares are given; leave one of both out")
        if len(shares) < len(train) and sum(shares) >= 1:
            raise ValueError(f"train: shares of {sum(shares):g} leave nothing for those without one")
        for name, one in (("dev", self.dev), ("test", self.test)):
            if one is not None and (one.share is not None or one.importance != 1):
                raise ValueError(f"{name}: share and importance are for training")
        return self

    @model_validator(mode="after")
    def _alike(self) -> Data:
        train = self.sets["train"][0]
        for name, sets in self.sets.items():
            for one in sets:
                if odd := set(one.extra_names) ^ set(train.extra_names):
                    raise ValueError(f"{name}: some datasets have {', '.join(sorted(odd))}, others not")
        return self
