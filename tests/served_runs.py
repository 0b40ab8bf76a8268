"""Little runs of every kind for tests of the server and its page: a few steps each, trained once per process."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import retrieval
from scenes import write_blocks
from seqloom.api.retriever import load_retriever, training_targets
from seqloom.api.train import train
from tiny import WORDS, write_reversals
from tones import write_tones

PAIRS = """
languages: {{source: en, target: en-x-reversed}}
data: {{train: {data}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 16}}
  target_embedding: {{width: 16}}
  encoder: {encoder}
  decoder: {decoder}
batching: {{tokens: 256}}
training: {{steps: {steps}, optimiser: {{kind: adam, lr: 1e-2}}}}
search: {{strategy: {{kind: beam, size: 3}}}}
runtime: {{threads: 1, device: cpu}}
"""
EXTRAS = """
data: {{train: {{path: {data}, extras: {{tags: 2}}}}}}
source: {{tokenizer: characters}}
target: {{tokenizer: characters}}
extras:
  tags: {{tokenizer: {{kind: symbols, separator: ";"}}, use: encoder}}
model:
  source_embedding: {{width: 16}}
  target_embedding: {{width: 16}}
  encoder: {{width: 16, cell: gru}}
  decoder: {{kind: bahdanau, width: 16, cell: gru}}
batching: {{tokens: 256}}
training: {{steps: 60, optimiser: {{kind: adam, lr: 0.02}}}}
runtime: {{threads: 1, device: cpu}}
"""
LABELS = """
data: {{train: {data}}}
source: {{tokenizer: words}}
target: {{tokenizer: {tokenizer}}}
model:
  source_embedding: {{width: 16}}
  encoder: {{width: 16}}
  decoder: {decoder}
batching: {{tokens: 256}}
training: {{steps: 20, optimiser: {{kind: adam, lr: 1e-2}}}}
evaluation: {{metrics: [{metric}]}}
runtime: {{threads: 1, device: cpu}}
"""
LANGUAGE = """
data: {{train: {{kind: text, path: {data}}}}}
target: {{tokenizer: words}}
model: {{kind: language, embedding: {{width: 16}}, decoder: {{kind: rnn, width: 16}}}}
batching: {{tokens: 256}}
training: {{steps: 20, optimiser: {{kind: adam, lr: 1e-2}}}}
runtime: {{threads: 1, device: cpu}}
"""
PICTURES = """
data: {{train: {{path: {data}, references: [2]}}}}
source: {{kind: pixels, size: 16, region: 4}}
target: {{tokenizer: words}}
model:
  target_embedding: {{width: 16}}
  encoder: {{kind: cnn, width: 16, channels: 8}}
  decoder: {{kind: bahdanau, cell: gru, width: 16}}
batching: {{tokens: 272}}
training: {{steps: 10, optimiser: {{kind: adam, lr: 5e-3}}}}
evaluation: {{metrics: [exact]}}
runtime: {{threads: 1, device: cpu}}
"""
SOUND = """
data: {{train: {data}}}
source: {{kind: sound, sample_rate: 8000, bands: 12, stack: 2}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 16}}
  target_embedding: {{width: 8}}
  encoder: {{kind: pyramid, width: 16, layers: 2}}
  decoder: {{kind: bahdanau, width: 16}}
batching: {{tokens: 512}}
training: {{steps: 6, optimiser: {{kind: adam, lr: 5e-3}}}}
evaluation: {{metrics: [wer]}}
runtime: {{threads: 1, device: cpu}}
"""


def _trained(name: str, recipe: str, **parts: object) -> Path:
    folder = Path(str(parts["data"])).parent
    (folder / "recipe.yaml").write_text(recipe.format(**parts), encoding="utf-8")
    return train(folder / "recipe.yaml", folder / name).folder


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="seqloom-served-"))


@cache
def reversing() -> Path:
    """Words said backwards, by attention: it has learned most of it."""
    data = _folder() / "pairs.tsv"
    write_reversals(data)
    return _trained("reversing", PAIRS, data=data, encoder="{width: 24}", decoder="{width: 24}", steps=150)


@cache
def heads() -> Path:
    """The same by a Transformer of two layers and two heads, which has hardly begun."""
    data = _folder() / "pairs.tsv"
    write_reversals(data, 300)
    stack = "{kind: transformer, width: 16, layers: 2, heads: 2}"
    return _trained("heads", PAIRS, data=data, encoder=stack, decoder=stack, steps=20)


@cache
def inflecting() -> Path:
    """A stem and its tags, to its form."""
    data, rng = _folder() / "forms.tsv", Random(1)
    stems = ["".join(rng.choices("abcdef", k=3)) for _ in range(150)]
    endings = {"V;PST": "ed", "N;PL": "z"}
    data.write_text("".join(f"{stem}\t{stem}{end}\t{tags}\n" for stem in stems for tags, end in endings.items()))
    return _trained("inflecting", EXTRAS, data=data)


@cache
def labels() -> Path:
    data, rng = _folder() / "days.tsv", Random(1)
    moods = {"glad": ["sunny", "lovely"], "sad": ["cold", "awful"]}
    chosen = [(mood, rng.choice(moods[mood])) for mood in rng.choices(list(moods), k=200)]
    data.write_text("".join(f"day {n} was {word}\t{mood}\n" for n, (mood, word) in enumerate(chosen)))
    parts = {"decoder": "{kind: label, pooling: mean}", "tokenizer": "whole", "metric": "accuracy"}
    return _trained("labels", LABELS, data=data, **parts)


@cache
def tags() -> Path:
    data, rng = _folder() / "tags.tsv", Random(1)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(2, 5))) for _ in range(200)]
    data.write_text(
        "".join(f"{line}\t{' '.join('A' if word < 'd' else 'B' for word in line.split())}\n" for line in lines)
    )
    parts = {"decoder": "{kind: tags}", "tokenizer": "words", "metric": "accuracy"}
    return _trained("tags", LABELS, data=data, **parts)


@cache
def language() -> Path:
    data, rng = _folder() / "lines.txt", Random(1)
    data.write_text("".join(" ".join(rng.choices(WORDS, k=4)) + "\n" for _ in range(300)))
    return _trained("language", LANGUAGE, data=data)


@cache
def pictures() -> Path:
    return _trained("pictures", PICTURES, data=write_blocks(_folder(), 60))


@cache
def sound() -> Path:
    return _trained("sound", SOUND, data=write_tones(_folder(), 60))


@cache
def ranking() -> Path:
    run = Path(shutil.copytree(retrieval.trained(), _folder() / "ranking"))
    retriever = load_retriever(run)
    index, _ = retriever.indexed(training_targets(retriever))
    index.save(retriever.index_folder, retriever.computed_by)
    return run
