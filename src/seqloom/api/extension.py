"""Fine-tuning on data with new pieces: larger vocabularies, and weights that keep all they know.

Old pieces keep their ids. A new piece begins as the mean of the old ones with a little noise, wherever the model has a
row (or column) per piece; so it is neither likely nor impossible, and two new ones are not the same. Tags that are set
before a source are such pieces too: a run that learned words alone goes on with words and tags. Subwords of a trained
model are a closed set and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from seqloom import weights
from seqloom.config import kind_of
from seqloom.data.codec import MAX_CHARACTERS, TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.examples import Example
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.models.generator import Network
from seqloom.recipe import Recipe
from seqloom.runtime import seed_step
from seqloom.shapes import Int, Tensor
from seqloom.specials import SPECIALS
from seqloom.wiring import joined_codecs

NOISE = 0.1  # of the old rows' deviation
NEW = -1  # in an origin: a row that nobody had before


def extended(
    recipe: Recipe, codecs: Codecs, train: Callable[[], Iterator[Example]], learned: Callable[[str], TextCodec]
) -> Codecs:
    """The same codecs with the training examples' new pieces behind the old ones; E_RECIPE for fixed inventories.

    `learned` gives the codec of an extra that the first run has not.
    """

    def grown(codec: TextCodec, *sides: str) -> TextCodec:
        named = ({"source": one.source, "target": one.target, **one.extras} for one in train())
        texts = (texts[side] for texts in named for side in sides)
        return _extended(codec, (text for text in texts if len(text) <= MAX_CHARACTERS), sides[0])

    extras = {
        name: grown(codecs.extras[name], name) if name in codecs.extras else learned(name)
        for name, extra in recipe.extras.items()
        if not extra.shared
    }
    read = ["source", *recipe.shared_extras]
    if recipe.model.one_vocabulary:
        both = grown(codecs.source.as_text(), *read, "target")
        return joined_codecs(recipe, both, both, extras)
    return joined_codecs(recipe, grown(codecs.source.as_text(), *read), grown(codecs.target, "target"), extras)


def _extended(codec: TextCodec, texts: Iterator[str], side: str) -> TextCodec:
    kind = kind_of(codec.settings.tokenizer)
    if kind in ("bpe", "unigram"):
        what = f"{side}: the pieces of a {kind} tokenizer are fixed once it is trained, so none can be added"
        fix = "leave extend_vocabulary out (rare words are cut into known pieces), or train anew without --from"
        raise SeqloomError("E_RECIPE", what, where="training.extend_vocabulary", fix=fix)
    old = codec.vocabulary
    if codec.tokenizer.pieces() is not None:  # bytes: there are no others
        return TextCodec(codec.settings, codec.tokenizer, old.with_symbols(()))
    found = Vocabulary.count(map(codec.tokens, texts), min_count=codec.settings.vocabulary.min_count)
    assert found.counts is not None
    new = {piece: count for piece, count in found.counts.items() if piece not in old}
    counts = None if old.counts is None else [*old.counts.values(), *new.values()]
    return TextCodec(codec.settings, codec.tokenizer, Vocabulary([*old.ordinary, *new], counts))


def added(before: Codecs, after: Codecs) -> dict[str, int]:
    """How many pieces every side has won."""
    old, new = _sides(before), _sides(after)
    return {side: len(new[side].ordinary) - (len(old[side].ordinary) if side in old else 0) for side in new}


def carry_over(first: Network, before: Codecs, network: Network, after: Codecs, seed: int) -> None:
    """Put the weights of the first model into one of larger vocabularies."""
    old, new = _sides(before), _sides(after)
    origins = {side: _origin(old[side], new[side]) for side in new if side in old}
    known, wanted = weights.of_model(first), weights.of_model(network)
    generator = torch.Generator().manual_seed(int(seed_step(seed, 0, stream="extension").integers(2**62)))
    tensors = {
        name: _grown(name, tensor.cpu(), wanted[name].shape, origins, generator) if name in wanted else tensor
        for name, tensor in known.items()
    }
    weights.restore(network, tensors, "the run to begin from")


def _sides(codecs: Codecs) -> dict[str, Vocabulary]:
    """The target's first: what does not say whose it is (an output matrix) is the target's."""
    extras = {name: codec.vocabulary for name, codec in codecs.extras.items()}
    return {"target": codecs.target.vocabulary, "source": codecs.source.as_text().vocabulary, **extras}


def _origin(old: Vocabulary, new: Vocabulary) -> Int[Tensor, "V"]:
    """For every id the id that it had before, or NEW. Symbols stand behind the pieces, so new pieces move them."""
    before = {key: token for token, key in enumerate(_keys(old))}
    return torch.tensor([before.get(key, NEW) for key in _keys(new)])


def _keys(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """What stands under each id, in order; a tag that spells like a piece is another thing."""
    parts = (("special", SPECIALS), ("piece", vocabulary.ordinary), ("symbol", vocabulary.symbols))
    return [(kind, name) for kind, names in parts for name in names]


def _grown(
    name: str, tensor: Tensor, shape: torch.Size, origins: Mapping[str, Int[Tensor, "V"]], generator: torch.Generator
) -> Tensor:
    """A tensor whose one dimension of a vocabulary's size has become larger; others are left for `restore` to judge."""
    larger = [dim for dim, (old, new) in enumerate(zip(tensor.shape, shape, strict=False)) if old != new]
    if len(larger) != 1 or len(shape) != tensor.dim():
        return tensor
    dim = larger[0]
    sizes = (tensor.shape[dim], shape[dim])
    fitting = [side for side, origin in origins.items() if (int((origin != NEW).sum()), len(origin)) == sizes]
    if not fitting:
        return tensor
    origin = origins[min(fitting, key=lambda side: side not in name)]  # of several, the one that the name speaks of
    rows = tensor.movedim(dim, 0)  # V ...
    ordinary = rows[len(SPECIALS) :]
    noise = torch.randn((len(origin), *rows.shape[1:]), generator=generator) * NOISE
    fresh = ordinary.mean(0) + noise.to(rows.dtype) * ordinary.std(0, correction=0)
    known = (origin != NEW).view(-1, *[1] * (rows.dim() - 1))
    return torch.where(known, rows[origin.clamp(min=0)], fresh).movedim(0, dim)
