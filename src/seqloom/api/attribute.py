"""What made a model say each word (`attributed`), and whether its attention may be read as that (`faithfulness`).

Both force one pass after the other over an answer, the model's own or a given one, in float32 whatever the recipe's
precision is. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import ValidationError

from seqloom import wording
from seqloom.api.explain import given, read
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.batch import Batch
from seqloom.config import Settings, kind_of
from seqloom.data.batching import collate_pairs
from seqloom.data.codecs import Codecs, Encoded, Ids, Pair
from seqloom.data.examples import Inputs
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.probe.attribution import METHODS
from seqloom.probe.bins import FEW, bins_of, labels_of
from seqloom.probe.faithfulness import Faithfulness, Trials, measured
from seqloom.probe.origins import Attribution, Side

Chosen = str | Mapping[str, object] | Settings  # "gradient", or {"kind": "integrated", "steps": 100}


def attributed(
    model: Model,
    inputs: Inputs,
    output: str | None = None,
    method: Chosen = "gradient",
    options: Options | None = None,
) -> Attribution:
    """What each token of an output owes to each token read; without an `output`, of the one that search finds.

    E_USAGE for an empty text, for several models as one, and where the model has not what the method looks at; E_LONG
    for what is over the recipe's limits; E_EXTRA where integrated gradients lack captum.
    """
    settings = _settings(method)
    pair = _answer(model, inputs, output, options)
    found = METHODS.build(settings)(model.network, pair.batch)
    with torch.no_grad():
        log_probs = -model.network.nll(pair.batch)[0].double().cpu().numpy()
    if pair.truncated or model.network.decoder.sure_of_end:  # the end is not its own, or no choice
        steps = len(log_probs) - 1
        missed = None if found.missed is None else found.missed[:steps]
        found = replace(
            found, of_source=found.of_source[:steps], of_target=found.of_target[:steps, :steps], missed=missed
        )
    said = pair.said.first(len(found.of_source))
    return Attribution(kind_of(settings), pair.read, said, log_probs[: len(found.of_source)], found)


def faithfulness(
    model: Model,
    asked: Inputs | Iterable[Inputs | Example],
    trials: Trials | None = None,
    options: Options | None = None,
    output: str | None = None,
) -> Faithfulness:
    """Whether the weights over the source say what the outputs depend on, over one text or several.

    Of an example its first reference is looked at, of a text the answer that search finds, unless an `output` is given.
    """
    several: list[Inputs | Example] = [asked] if isinstance(asked, (str, Mapping)) else list(asked)
    if not several:
        raise SeqloomError("E_EMPTY", "no texts whose answers could be looked at")
    pairs = [
        _answer(model, one, output, options)
        if isinstance(one, (str, Mapping))
        else _answer(model, one.inputs, one.target, options, one.where)
        for one in several
    ]
    return Faithfulness.of(measured(model.network, pair.batch, trials) for pair in pairs)


def _settings(method: Chosen) -> Settings:
    try:
        return METHODS.settings(method)
    except ValidationError as error:
        problems = [f"{wording.path(item['loc'])}{wording.problem(item)}" for item in error.errors(include_url=False)]
        raise SeqloomError("E_USAGE", f"method: {'; '.join(problems)}") from None
    except ValueError as error:
        raise SeqloomError("E_USAGE", f"method: {error}") from None


# --- one answer ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """One input and one output, as a batch and as words."""

    batch: Batch
    read: Side
    said: Side
    truncated: bool


def _answer(model: Model, inputs: Inputs, output: str | None, options: Options | None, where: str = "") -> _Answer:
    chosen, codecs = options or Options(), model.codecs
    text, _, encoded = read(model, inputs, where)
    truncated = False
    if output is None:
        best = model.search([encoded], chosen)[0][0]
        ids: Ids = np.asarray(best.tokens, dtype=np.int64)
        truncated = best.truncated
        pieces = codecs.said(best.tokens, encoded.foreign)
        spelled = codecs.target.tokenizer.decode(pieces)
    else:
        ids = given(model, inputs, output, where)
        pieces, spelled = codecs.target.tokens(output), codecs.target.normalise(output)
    pair = Pair(encoded.source, ids, 0, encoded.extras, encoded.copies, words=encoded.words)
    batch = collate_pairs([pair]).to(model.device)
    return _Answer(batch, _read(codecs, text, encoded), _said(codecs, pieces, spelled), truncated)


def _read(codecs: Codecs, text: str, encoded: Encoded) -> Side:
    """The source's words; what stands before and behind its text (features, ends, extras) are words of their own."""
    tokens = codecs.positions(encoded)
    end = len(encoded.source)
    before = end - encoded.own
    if encoded.frames:
        places = bins_of(encoded.frames, len(tokens), FEW)
        return Side(tokens, labels_of(tokens, places), tuple(places.tolist()), min(encoded.frames, FEW))
    inside = _words(codecs.source.words(text), encoded.own)
    words = codecs.source.as_text().normalise(text).split() if inside else tokens[before:end]
    return _side(tokens, before, words, inside or list(range(encoded.own)))


def _said(codecs: Codecs, pieces: Sequence[str], text: str) -> Side:
    inside = _words(codecs.target.tokenizer.words(pieces, text), len(pieces))
    words = text.split() if inside else pieces
    return _side((*pieces, "<eos>"), 0, words, inside or list(range(len(pieces))))


def _words(words: Sequence[int], count: int) -> list[int]:
    """The word of each piece; none where the pieces do not spell the text (half a character of a byte model)."""
    return list(words) if len(words) == count and max(words, default=-1) >= 0 else []


def _side(tokens: Sequence[str], before: int, words: Sequence[str], inside: Sequence[int]) -> Side:
    behind = tokens[before + len(inside) :]
    parts = [
        *range(before),
        *(word if word < 0 else before + word for word in inside),
        *range(before + len(words), before + len(words) + len(behind)),
    ]
    return Side(tuple(tokens), (*tokens[:before], *words, *behind), tuple(parts), len(words))
