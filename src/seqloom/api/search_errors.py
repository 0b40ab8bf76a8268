"""How often does a beam miss the best output? Measured against exact search, on sources where it can be proven.

The lecture's question: the share of search errors for beams of 1 to 10. A source counts when best-first search proves
the most probable output within its budget; a beam errs when its output is less probable. No length normalisation: the
question is whether the model's own maximum was found, not whether it is the better output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.config import Plain
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.search.exact import best_first, search_errors
from seqloom.search.hypotheses import LENGTHS

BEAMS = tuple(range(1, 11))


@dataclass(frozen=True)
class SearchErrors:
    """`errors[k]` of the `proven` sources went wrong with a beam of k; `tried` were looked at."""

    tried: int
    proven: int
    errors: dict[int, int]

    def share(self, beam: int) -> float:
        return self.errors[beam] / max(1, self.proven)

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {"beam": beam, "errors": errors, "share": self.share(beam)} for beam, errors in self.errors.items()
        ]
        return {"tried": self.tried, "proven": self.proven, "beams": rows}


def measure_search_errors(
    model: Model, sources: Sequence[Inputs], *, beams: Sequence[int] = BEAMS, budget: int = 10_000
) -> SearchErrors:
    """Beams of each size against exact search, under the recipe's limits."""
    encoded = [read for inputs in sources if (read := model.codecs.encode(inputs)).own]
    if not encoded:
        raise SeqloomError("E_EMPTY", "no sources to search on")
    length = LENGTHS.settings("none")
    scorer = model.scorer or model.network
    batch = model.sources(encoded)
    exact = best_first(scorer, batch, limits=model.recipe.search.limits, length=length, budget=budget)
    errors: dict[int, int] = {}
    for beam in beams:
        strategy = {"kind": "beam", "size": beam, "length": length.model_dump()}
        found = model.search(encoded, Options.model_validate({"strategy": strategy}))
        errors[beam], _ = search_errors([hypotheses[0] for hypotheses in found], exact, length)
    proven = sum(result.exact and not result.hypothesis.truncated for result in exact)
    return SearchErrors(len(encoded), proven, errors)
