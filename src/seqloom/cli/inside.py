"""What `seqloom explain` shows beside an answer: of many examples (`Looks`), and of one text (`Closer`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.explain import Question
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.config import Plain
    from seqloom.data.readers import Example
    from seqloom.probe.explain import AttentionMap
    from seqloom.probe.origins import Attribution

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


@dataclass(frozen=True)
class Seen:
    """What was found of one text: for programs, for a terminal, and for a page, which draws attributions itself."""

    told: Mapping[str, Plain] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attribution: Attribution | None = None


@dataclass(frozen=True)
class Closer:
    """Closer looks at the answer to one text: what it came from, what is near, whether attention tells."""

    method: str | None = None
    neighbours: int | None = None
    faithfulness: bool = False
    data: str | None = None
    words: bool = False
    layer: int | None = None

    @property
    def any(self) -> bool:
        return self.method is not None or self.neighbours is not None or self.faithfulness

    def refuse_unheard(self, drawn: Mapping[str, bool], paged: bool, edits: bool) -> None:
        """E_USAGE for options whose effect nobody would see beside these looks; a page shows the answer as well."""
        if not self.any:
            return
        if edits:
            what = "--attend and --mask-head edit the answer alone"
            raise SeqloomError("E_USAGE", what, fix="leave the other look out")
        heard = {"--words"} if self.method is not None else set()
        odd = [name for name, there in drawn.items() if there and name not in heard and not paged]
        if self.layer is not None and self.method != "attention" and not paged:
            odd.append("--layer")
        if odd:
            what = f"{odd[0]} is about the answer, which --attribute, --neighbours and --faithfulness do not show"
            raise SeqloomError("E_USAGE", what, fix=f"leave {odd[0]} out, or ask twice")

    def seen(self, model: Model, question: Question, options: Options) -> Seen:
        told: dict[str, Plain] = {}
        parts: list[list[str]] = []
        attribution = self._attributed(model, question, options)
        if attribution is not None:
            told["attribution"] = attribution.as_dict()
            parts.append(_attribution_lines(attribution, self.words or model.recipe.data.in_files))
        rest: list[str] = []
        if self.neighbours is not None:
            from seqloom.api.states import neighbours

            training = None if self.data is None else examples_of(model, self.data)
            (near,) = neighbours(model, [question.inputs], training, k=self.neighbours)
            told["neighbours"] = near.as_dict()
            parts.append(near.lines(say.width() or WIDTH))
            rest += parts[-1]
        if self.faithfulness:
            from seqloom.api.attribute import faithfulness

            faith = faithfulness(model, question.inputs, options=options, output=question.target)
            told["faithfulness"] = faith.as_dict()
            parts.append(faith.lines(say.width() or WIDTH))
            rest += faith.lines()
        lines = [line for place, part in enumerate(parts) for line in (*([""] if place else []), *part)]
        return Seen(told, tuple(lines), tuple(rest), attribution)

    def _attributed(self, model: Model, question: Question, options: Options) -> Attribution | None:
        from seqloom.api.attribute import attributed

        if self.method is None:
            return None
        layered = self.layer is not None and self.method == "attention"
        chosen = {"kind": self.method, "layer": self.layer} if layered else self.method
        return attributed(model, question.inputs, question.target, chosen, options)


def _attribution_lines(found: Attribution, words: bool) -> list[str]:
    """The maps over what was read and over what had been said, and what each word came from."""
    shown = found.by_words() if words else found
    kind = "shares, whether it spoke for or against" if found.found.unit == "log p" else "shares"
    lines = [f"what each token owes to each that was read, by {found.method}: {kind}", "", *drawn_map(shown.map())]
    if shown.of_target.any():
        lines += ["", "and to what had been said before it", "", *drawn_map(shown.map_of_output())]
    return [*lines, "", "what spoke for each word, as shares of the source's part", *map(str, found.origins())]


def drawn_map(shown: AttentionMap) -> list[str]:
    """Its lines, for this terminal."""
    from seqloom.probe.heatmap import render, style_of

    lines = render(shown, (say.width() or WIDTH) - 2, style_of(sys.stdout, os.environ))
    return [f"  {line}".rstrip() for line in lines]


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
