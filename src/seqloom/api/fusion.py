"""Shallow fusion: a model whose search is advised by another run of the same target vocabulary."""

from __future__ import annotations

from dataclasses import replace

from seqloom.api.model import Model
from seqloom.errors import SeqloomError
from seqloom.models.mixture import Mixture

MOST_WEIGHT = 1000


def fuse(model: Model, other: Model, weight: float = 0.3) -> Model:
    """The model, with `weight` * log p of the other one added when its search compares hypotheses.

    `score` includes it; `log_prob` and the confidence stay the model's own. Both read the same source.
    """
    if not weight > 0:
        raise SeqloomError("E_USAGE", f"a weight of {weight:g} fuses nothing", fix="a weight above 0, such as 0.3")
    if weight > MOST_WEIGHT:
        raise SeqloomError("E_USAGE", f"a weight of {weight:g} leaves the model no say", fix=f"at most {MOST_WEIGHT}")
    if odd := model.codecs.difference(other.codecs):
        what = f"{model.name} and {other.name} do not read and write alike: {odd}"
        fix = "fuse a run that was trained on the same vocabularies: the same data, text settings and seed of the split"
        raise SeqloomError("E_BUNDLE", what, fix=fix)
    other.network.to(model.device)
    advice = Mixture([other.scorer or other.network], [weight], len(model.target.vocabulary))
    return replace(model, name=f"{model.name}+{weight:g}*{other.name}", advice=advice)
