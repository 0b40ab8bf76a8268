"""What else could stand here: after a given beginning, the likeliest next tokens, each completed by search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.batch import Tokens
from seqloom.config import Plain
from seqloom.data.codecs import Encoded
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.search.frontier import NEVER, Offers, best
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Walk
from seqloom.search.strategies import STRATEGIES, Greedy
from seqloom.specials import EOS, SPECIALS, UNK

if TYPE_CHECKING:
    from seqloom.api.model import Model


@dataclass(frozen=True)
class Alternative:
    """A next token, its probability after the beginning, and the whole output that it leads to."""

    token: str
    probability: float
    prediction: Prediction

    def as_dict(self) -> dict[str, Plain]:
        return {"token": self.token, "probability": self.probability, "prediction": self.prediction.as_dict()}


def alternatives(model: Model, inputs: Inputs, count: int, options: Options) -> list[Alternative]:
    """The `count` likeliest tokens after `options.prefix`, the likeliest first; "<eos>" is an output that ends there.

    Constraints hold for the next token too; an unknown word is none that a person could choose.
    """
    text, extras = model.codecs.texts(inputs)
    encoded = model.codecs.encode(inputs)
    if not text.strip() or not encoded.own:
        raise SeqloomError("E_USAGE", "an empty text has no alternatives")
    with model.precision():
        walk, offers = _beginning(model, encoded, options)
    allowed = offers.log_probs.masked_fill(~offers.allowed, NEVER)
    allowed[:, UNK] = NEVER
    log_probs, tokens = (values[0].tolist() for values in best(allowed, count))
    chosen = [(token, log_prob) for token, log_prob in zip(tokens, log_probs, strict=True) if log_prob > NEVER]
    completed = iter(_completed(model, encoded, options, [token for token, _ in chosen if token != EOS]))
    found = []
    for token, log_prob in chosen:
        hypotheses = [_ended(model, encoded, walk, offers, options)] if token == EOS else next(completed)
        prediction = model.prediction(text, extras, encoded, hypotheses[: options.n_best], options)
        found.append(Alternative(_shown(model, token, encoded), float(torch.tensor(log_prob).exp()), prediction))
    return found


def _beginning(model: Model, encoded: Encoded, options: Options) -> tuple[Walk, Offers]:
    """A walk to the end of the prefix, and what is offered there."""
    asking = model.asking(options)
    begun = [model.codecs.begun(asking.prefix, encoded)]
    wishes = replace(asking.wishes(begun, model.advised), phrases=None)  # these are for the rest of the output
    walk = Walk(model.stepped(options, wishes.prefixes), model.sources([encoded]), Greedy.Settings(), wishes)
    for _ in asking.prefix:
        walk.step()
    if walk.done:
        raise SeqloomError("E_USAGE", "the model says that the prefix is impossible", fix="give another prefix")
    return walk, walk.offers()


def _completed(model: Model, encoded: Encoded, options: Options, tokens: list[int]) -> list[list[Hypothesis]]:
    """The prefix and each of some tokens, completed by the search that the options ask for."""
    if not tokens:
        return []
    begun = model.codecs.begun(model.asking(options).prefix, encoded)
    prefixes = [(*begun, token) for token in tokens]
    return model.search([encoded] * len(tokens), options, Tokens.pad(prefixes))


def _ended(model: Model, encoded: Encoded, walk: Walk, offers: Offers, options: Options) -> Hypothesis:
    """The prefix as a whole output."""
    tokens = tuple(model.codecs.begun(model.asking(options).prefix, encoded))
    end = torch.tensor([[EOS]], device=offers.log_probs.device)
    log_prob, advice = offers.taken(end)
    terms, advised = [float(log_prob)], float(advice)
    if tokens:
        place = torch.zeros_like(end)
        _, log_probs, added = walk.trail.back(place, torch.full_like(place, len(tokens)))
        terms, advised = [*log_probs[0, 0].tolist(), *terms], advised + float(added.sum())
    total = sum(terms)
    normalisation = STRATEGIES.build(model.asking(options).strategy).normalisation
    score = normalisation.score(torch.tensor(total + advised, dtype=torch.float64), torch.tensor(len(tokens)))
    return Hypothesis(tokens, tuple(terms), total, float(score), truncated=False, advice=advised)


def _shown(model: Model, token: int, encoded: Encoded) -> str:
    """A token as a person reads it."""
    (piece,) = model.codecs.said([token], encoded.foreign)
    return piece if token < len(SPECIALS) else model.target.tokenizer.surface(piece)
