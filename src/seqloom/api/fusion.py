"""Shallow fusion: a model whose search is advised by another run of the same target vocabulary."""

from __future__ import annotations

from dataclasses import replace

from seqloom.api.model import Model
from seqloom.errors import SeqloomError
from seqloom.models.mixture import Mixture, Sourceless

MOST_WEIGHT = 1000


def fuse(model: Model, other: Model, weight: float = 0.3) -> Model:
    """The model, with `weight` * log p of the other one added when its search compares hypotheses.

    `score` includes it; `log_prob` and the confidence stay the model's own. Both read the same source, unless the other
    is a language model, which knows nothing but what was said.
    """
    if not weight > 0:
        raise SeqloomError("E_USAGE", f"a weight of {weight:g} fuses nothing", fix="a weight above 0, such as 0.3")
    if weight > MOST_WEIGHT:
        raise SeqloomError("E_USAGE", f"a weight of {weight:g} leaves the model no say", fix=f"at most {MOST_WEIGHT}")
    speaks = other.codecs.continues and not model.codecs.continues
    odd = _said_otherwise(model, other) if speaks else model.codecs.difference(other.codecs)
    if odd:
        what = f"{model.name} and {other.name} do not {'write' if speaks else 'read and write'} alike: {odd}"
        fix = "fuse a run that was trained on the same vocabularies: the same data, text settings and seed of the split"
        if speaks:
            fix = f"train the language model with --tokens-of {model.name}"
        raise SeqloomError("E_BUNDLE", what, fix=fix)
    other.network.to(model.device)
    scorer = Sourceless(other.network.decoder, other.network.head) if speaks else other.scorer or other.network
    advice = Mixture([scorer], [weight], len(model.target.vocabulary))
    return replace(model, name=f"{model.name}+{weight:g}*{other.name}", advice=advice)


def _said_otherwise(model: Model, other: Model) -> str:
    """Why a language model cannot tell what a model's output is worth, in a few words; empty where it can."""
    if setting := model.target.difference(other.target):
        return f"target.{setting}"
    return "" if model.target.vocabulary == other.target.vocabulary else "their target vocabularies differ"
