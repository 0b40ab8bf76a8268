"""What a person may ask of one prediction, over what the recipe says.

Words and texts stand here as they were typed; `asking.py` works out what they mean for one model.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from seqloom.api.asked import Asked
from seqloom.config import Kind, Settings, kind_of, validated
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Likeness
from seqloom.search.strategies import STRATEGIES
from seqloom.tasks.transduce import SearchSettings

BEAMS = ("beam", "diverse", "lexical")  # strategies with a size
GROUPS_OF = 2  # hypotheses in a group of diverse search, where no beam says otherwise


class Risk(Settings):
    """Of many samples the one that the others agree with most: minimum Bayes risk (Kumar and Byrne 2004).

    Samples are drawn as `strategy` says where it is of the kind `sample`, otherwise from the model as it is.
    """

    samples: int = Field(32, ge=2, le=100_000)
    metric: Likeness = METRICS.settings("chrf")  # what "agree" means
    beam: bool = False  # what a beam finds is a candidate as well (it counts nothing for the others)


class Options(Asked):
    """All that our own search can be asked for. `beam` is short for `strategy: {kind: beam, size: ...}`."""

    strategy: Annotated[Settings | None, Kind(STRATEGIES)] = None
    groups: int | None = Field(None, ge=1)  # diverse beam search: so many groups of the beam
    diversity: float | None = Field(None, ge=0.0)  # with groups: what a token costs that another group took
    banned: tuple[str, ...] = ()  # tokens and phrases that must not occur
    must: tuple[str, ...] = ()  # words and phrases that must occur
    one_of: tuple[str, ...] | None = None  # the output is one of these texts
    pattern: str | None = None  # the output matches this regular expression
    no_repeat: int | None = Field(None, ge=1)  # no n-gram of this length twice
    coverage_penalty: float = Field(0.0, ge=0.0)  # beta of Wu et al. 2016: prefer outputs that looked at all the source
    replace_unknown: bool = False  # an unknown word is replaced by the source word that the model looked at
    risk: Risk | None = None  # the output that agrees most with samples of the model
    shortlist: int | None = Field(None, ge=1, le=100_000)  # choose from so many tokens per source token (`lexicon`)
    deterministic: bool = False  # one source at a time: byte for byte the same whatever else is asked, and slower

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if self.strategy is not None and self.beam is not None:
            raise ValueError("give beam or strategy, not both")
        if self.beam is not None and self.n_best > self.beam and self.risk is None:
            raise ValueError(f"n_best {self.n_best} is over the beam's size {self.beam}")
        if self.diversity is not None and self.groups is None:
            raise ValueError("diversity has no meaning without groups")
        if self.groups is not None and self.must:
            raise ValueError("must: groups cannot promise phrases; leave one of both out")
        if self.one_of is not None and not any(self.one_of):
            raise ValueError("one_of: the list of possible outputs is empty")
        if self.shortlist is not None and (self.one_of is not None or self.pattern is not None):
            raise ValueError("shortlist: a list or a pattern says what may be said; leave the shortlist out")
        if self.must and (self.one_of is not None or self.pattern is not None):
            raise ValueError("must: a list or a pattern says all of the output; put the phrases there")
        return self

    @model_validator(mode="after")
    def _one_judge(self) -> Options:
        if self.risk is None:
            return self
        if self.coverage_penalty:
            raise ValueError("risk: samples are judged by each other; leave coverage_penalty out")
        if self.must or self.groups is not None:
            raise ValueError("risk: samples are drawn, which neither must nor groups can steer; leave them out")
        if not self.risk.beam and (self.beam is not None or self._searches):
            raise ValueError("risk: beam has no meaning where samples are drawn; set risk.beam to have both")
        if self.n_best > self.risk.samples:
            raise ValueError(f"n_best {self.n_best} is over the number of samples {self.risk.samples}")
        return self

    @property
    def of_the_whole(self) -> bool:
        return bool(self.must) or self.one_of is not None or self.pattern is not None

    def rows(self, strategy: Settings) -> int:
        """Hypotheses of one source that a search takes along: what a batch costs."""
        if self.risk is not None:
            return self.risk.samples
        keys = strategy.model_dump()
        return int(keys.get("size") or keys.get("samples") or 1)

    @property
    def _searches(self) -> bool:
        return self.strategy is not None and kind_of(self.strategy) != "sample"

    def searching(self, recipe: SearchSettings) -> SearchSettings:
        """The recipe's search with these wishes applied; E_USAGE where they cannot be."""
        wishes = {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "min_ratio": self.min_ratio,
            "max_ratio": self.max_ratio,
        }
        limits = {**dict(recipe.limits), **{name: value for name, value in wishes.items() if value is not None}}
        try:
            return validated(SearchSettings, {"strategy": self._strategy(recipe.strategy), "limits": limits}, "search")
        except SeqloomError as error:
            fix = "a wider beam, or a smaller n_best" if "n_best" in error.what else error.fix
            fix = "a beam that the groups divide" if "does not divide" in error.what else fix
            raise SeqloomError("E_USAGE", error.what.removeprefix("strategy: "), fix=fix) from None

    def _strategy(self, recipe: Settings) -> dict[str, object]:
        strategy = dict((self.strategy or recipe).model_dump(mode="json"))
        if self.beam is not None:
            strategy = {"kind": "beam", **self._kept(recipe), "size": self.beam}
        if self.groups is not None:
            strategy = self._diverse(strategy)
        if self.must:
            strategy = _promising(strategy)
        if self.n_best > 1 and self.risk is None:
            strategy |= self._places(strategy)
        if self.coverage_penalty:
            if strategy["kind"] not in BEAMS:
                what = f"coverage_penalty: {strategy['kind']} search has nothing to choose from"
                raise SeqloomError("E_USAGE", what, fix="ask for a beam")
            strategy["n_best"] = strategy.get("finish") or strategy["size"]  # all that ended are judged again
        return strategy

    def _diverse(self, beam: dict[str, object]) -> dict[str, object]:
        """A beam as groups; without any beam, groups of a size of ours."""
        assert self.groups is not None
        if beam["kind"] == "sample" or (self.strategy is not None and beam["kind"] not in BEAMS):
            raise SeqloomError("E_USAGE", f"groups: {beam['kind']} search has no beam to divide", fix="ask for a beam")
        size = beam["size"] if beam["kind"] in BEAMS else self.groups * GROUPS_OF
        kept = {key: value for key, value in beam.items() if key in ("length", "stop")}
        penalty = {} if self.diversity is None else {"penalty": self.diversity}
        return {"kind": "diverse", **kept, "size": size, "groups": self.groups, **penalty}

    def _places(self, strategy: dict[str, object]) -> dict[str, object]:
        """Room for the n best."""
        if strategy["kind"] in BEAMS:
            return {"n_best": self.n_best}
        if "samples" in strategy:
            return {"samples": max(self.n_best, int(str(strategy["samples"])))}
        what = f"n_best {self.n_best}: {strategy['kind']} search has one hypothesis"
        raise SeqloomError("E_USAGE", what, fix="ask for a beam")

    def _kept(self, strategy: Settings) -> dict[str, object]:
        """What a beam of another size keeps of the recipe's beam."""
        if kind_of(strategy) not in BEAMS:
            return {}
        return {key: value for key, value in strategy.model_dump().items() if key in ("length", "stop")}


def _promising(strategy: dict[str, object]) -> dict[str, object]:
    """A beam as one that can promise phrases."""
    if strategy["kind"] not in ("beam", "lexical"):
        what = f"must: {strategy['kind']} search cannot promise that phrases occur"
        raise SeqloomError("E_USAGE", what, fix="ask for a beam")
    return {**strategy, "kind": "lexical"}
