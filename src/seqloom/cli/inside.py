"""What `seqloom explain` shows over many examples: states, gradients by distance, what depth captures, faithfulness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.model import Model
    from seqloom.config import Plain
    from seqloom.data.readers import Example

WIDTH = 100  # columns where no terminal says otherwise
FEW, MANY = 100, 1000  # examples that are looked at: one by one, and in batches


class Shown(Protocol):
    """A result that a person or a program can read."""

    def lines(self, width: int = ...) -> Sequence[str]: ...
    def as_dict(self) -> Mapping[str, Plain]: ...


@dataclass(frozen=True)
class Looks:
    """What is asked about examples rather than about one text."""

    states: bool = False
    colour: str = "length"
    gradients: bool = False
    layer: int | None = None
    depth: bool = False
    label: str | None = None
    scores: bool = False
    faithfulness: bool = False

    @property
    def any(self) -> bool:
        return self.states or self.gradients or self.depth or self.faithfulness

    def results(self, model: Model, examples: Sequence[Example]) -> dict[str, Callable[[], Shown]]:
        """What is to be found out, by its name in JSON; each is worked out when it is called."""
        from seqloom.api.attribute import faithfulness
        from seqloom.api.depth import attention_heads, context_reach, layer_probes
        from seqloom.api.gradients import gradients_by_distance
        from seqloom.api.states import state_map

        found: dict[str, Callable[[], Shown]] = {}
        if self.states:
            found["states"] = lambda: state_map(model, examples[:MANY], self.colour)
        if self.gradients:
            found["gradients"] = lambda: gradients_by_distance(model, examples, self.layer)
        if self.depth:
            if self.label is not None:
                label = self.label
                found["probes"] = lambda: layer_probes(model, examples[:MANY], label)
            found["reach"] = lambda: context_reach(model, examples)
            if model.network.attention_taps:
                found["heads"] = lambda: attention_heads(model, examples[:FEW], metric=self.scores)
        if self.faithfulness:
            found["faithfulness"] = lambda: faithfulness(model, examples[:FEW])
        return found


def examples_of(model: Model, data: str | None) -> list[Example]:
    """Of a file, or the run's own test set."""
    from seqloom.api.testset import chosen_examples, prepared

    return prepared(chosen_examples(model.recipe, data), model.recipe)


def show(results: Mapping[str, Callable[[], Shown]], as_json: bool) -> None:
    if as_json:
        say.as_json({name: dict(result().as_dict()) for name, result in results.items()})
        return
    for place, result in enumerate(results.values()):
        say.data(("\n" if place else "") + "\n".join(result().lines(say.width() or WIDTH)))


def refuse_alone(given: Mapping[str, bool], needs: str) -> None:
    """E_USAGE for options that have no meaning here."""
    if odd := [name for name, there in given.items() if there]:
        raise SeqloomError("E_USAGE", f"{odd[0]} has no meaning without {needs}", fix=f"give {needs}")
