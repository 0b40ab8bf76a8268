"""What a person may ask of one prediction, over what the recipe says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seqloom.config import Kind, Settings, kind_of, validated
from seqloom.errors import SeqloomError
from seqloom.search.strategies import STRATEGIES
from seqloom.tasks.transduce import SearchSettings


class Options(Settings):
    """Null means: as the recipe has it."""

    strategy: Annotated[Settings | None, Kind(STRATEGIES)] = None
    beam: int | None = Field(None, ge=1)  # short for strategy: {kind: beam, size: ...}; 1 is greedy
    n_best: int = Field(1, ge=1)
    min_length: int | None = Field(None, ge=0)
    max_length: int | None = Field(None, ge=1)
    min_ratio: float | None = Field(None, ge=0.0)
    max_ratio: float | None = Field(None, ge=0.0)
    banned: tuple[str, ...] = ()  # tokens that must not occur
    no_repeat: int | None = Field(None, ge=1)  # no n-gram of this length twice
    prefix: str = ""  # every output begins with this
    split: bool | None = None  # paragraphs into sentences; null: for runs that learned single sentences
    on_long: Literal["error", "split", "skip"] = "error"
    batch_tokens: int = Field(4096, ge=1)
    deterministic: bool = False  # one source at a time: byte for byte the same whatever else is asked, and slower

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if self.strategy is not None and self.beam is not None:
            raise ValueError("give beam or strategy, not both")
        if self.beam is not None and self.n_best > self.beam:
            raise ValueError(f"n_best {self.n_best} is over the beam's size {self.beam}")
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is over max_length {self.max_length}")
        return self

    def searching(self, recipe: SearchSettings) -> SearchSettings:
        """The recipe's search with these wishes applied; E_USAGE where they cannot be."""
        strategy = dict((self.strategy or recipe.strategy).model_dump(mode="json"))
        if self.beam is not None:
            strategy = {"kind": "beam", **self._kept(recipe.strategy), "size": self.beam}
        if self.n_best > 1:
            if strategy["kind"] == "beam":
                strategy["n_best"] = self.n_best
            elif strategy["kind"] == "sample":
                strategy["samples"] = max(self.n_best, strategy["samples"])
            else:
                what = f"n_best {self.n_best}: {strategy['kind']} search has one hypothesis"
                raise SeqloomError("E_USAGE", what, fix="ask for a beam")
        wishes = {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "min_ratio": self.min_ratio,
            "max_ratio": self.max_ratio,
        }
        limits = {**dict(recipe.limits), **{name: value for name, value in wishes.items() if value is not None}}
        try:
            return validated(SearchSettings, {"strategy": strategy, "limits": limits}, "search")
        except SeqloomError as error:
            fix = "a wider beam, or a smaller n_best" if "n_best" in error.what else ""
            raise SeqloomError("E_USAGE", error.what.removeprefix("strategy: "), fix=fix) from None

    def _kept(self, strategy: Settings) -> dict[str, object]:
        """What a beam of another size keeps of the recipe's beam."""
        if kind_of(strategy) != "beam":
            return {}
        return {key: value for key, value in strategy.model_dump().items() if key in ("length", "stop")}
