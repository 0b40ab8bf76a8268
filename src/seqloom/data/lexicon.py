"""Which target tokens a source token leads to, learned from the training pairs (IBM Model 1, Brown et al. 1993).

    p(t | s) ~ sum over pairs, and over places of s and t in them, of p(t | s) / sum over s' of p(t | s')

Every target token is said by one source token, any of them, or by the end of the source, which stands for none. The
likeliest t of every s are what predictions with a shortlist choose from. This file knows ids and arrays, no strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from seqloom import weights
from seqloom.data.codecs import Ids
from seqloom.data.corpus import Corpus
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write
from seqloom.shapes import Int, Tensor
from seqloom.specials import EOS

Long = npt.NDArray[np.int64]
FILE = "lexicon.safetensors"
FIX = "'seqloom lexicon RUN' learns one"
ROUNDS = 5  # of expectation and maximisation
KEPT = 200  # likeliest tokens of each source token
ANYWHERE = 100  # tokens of the target that are so frequent that every source may lead to them; of few, a 20th
MOST_LINKS = 20_000_000  # pairs of places that are looked at: 90,000 sentences of 15 words
NONE = -1  # fills rows of source tokens that lead to fewer


@dataclass(frozen=True)
class Lexicon:
    """For each source token its likeliest target tokens, best first, and those that are likely anywhere."""

    leads_to: Int[Tensor, "S K"]
    anywhere: Int[Tensor, "F"]

    @staticmethod
    def learn(corpus: Corpus, vocabularies: tuple[int, int], kept: int = KEPT) -> Lexicon:
        """From the pairs of a corpus: all of them, or as many as there is time for, evenly spread."""
        sources, targets, places = _links(corpus)
        keys, of_link = np.unique(sources * vocabularies[1] + targets, return_inverse=True)
        source, target = np.divmod(keys, vocabularies[1])
        likely: npt.NDArray[np.float64] = np.ones(len(keys))
        for _ in range(ROUNDS):
            shares = likely[of_link]
            shares /= np.bincount(places, shares)[places]
            counts = np.bincount(of_link, shares)
            likely = counts / np.bincount(source, counts)[source]
        order = np.lexsort((target, -likely, source))  # by source, then the likeliest first
        source, target = source[order], target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        table = np.full((vocabularies[0], min(kept, vocabularies[1])), NONE, dtype=np.int32)
        first = rank < table.shape[1]
        table[source[first], rank[first]] = target[first]
        return Lexicon(
            torch.from_numpy(table), torch.from_numpy(_frequent(corpus, min(ANYWHERE, vocabularies[1] // 20)))
        )

    def allowed(self, sources: Int[Tensor, "B S"], count: int, vocabulary: int) -> torch.Tensor:
        """Which tokens of the vocabulary each source may lead to (B V): `count` of each of its tokens, and the end."""
        found = torch.zeros(len(sources), vocabulary + 1, dtype=torch.bool)  # one place more, for none
        led = self.leads_to[sources.cpu()][..., :count].flatten(1).long()  # B S*k
        found.scatter_(1, torch.where(led == NONE, vocabulary, led), True)
        found[:, self.anywhere.long()] = True
        found[:, EOS] = True
        return found[:, :vocabulary].to(sources.device)

    def share(self, pairs: Sequence[tuple[Ids, Ids]], count: int) -> float:
        """Of the target tokens of given pairs, how many are on the shortlists of their sources?"""
        anywhere, hits, total = set(self.anywhere.tolist()), 0, 0
        for source, target in pairs:
            led = set(self.leads_to[torch.tensor([*source.tolist(), EOS])][:, :count].flatten().tolist()) | anywhere
            hits += sum(token in led for token in target.tolist())
            total += len(target)
        return hits / max(1, total)

    def save(self, folder: Path) -> Path:
        path = folder / FILE
        atomic_write(path, weights.to_bytes({"leads_to": self.leads_to, "anywhere": self.anywhere}))
        return path

    @staticmethod
    def load(folder: Path, vocabularies: tuple[int, int]) -> Lexicon:
        """E_BUNDLE where there is none, or one of another vocabulary."""
        path = folder / FILE
        if not path.is_file():
            raise SeqloomError("E_BUNDLE", "this run has no lexicon yet", where=str(folder), fix=FIX)
        try:
            tensors = weights.read(path)
        except SeqloomError as error:
            raise SeqloomError(error.code, error.what, where=str(path), fix=FIX) from None
        table, anywhere = tensors.get("leads_to"), tensors.get("anywhere")
        if table is None or anywhere is None or table.dim() != 2 or anywhere.dim() != 1:
            raise SeqloomError("E_BUNDLE", "not a lexicon", where=str(path), fix=FIX)
        if len(table) != vocabularies[0] or any(
            part.is_floating_point() or int(part.max()) >= vocabularies[1] or int(part.min()) < NONE
            for part in (table, anywhere)
            if part.numel()
        ):
            raise SeqloomError("E_BUNDLE", "a lexicon of another vocabulary", where=str(path), fix=FIX)
        return Lexicon(table, anywhere)


def _links(corpus: Corpus) -> tuple[Long, Long, Long]:
    """Of every pair all (source token, target token), the end of the source included, and which target place it is."""
    source_lengths, target_lengths = corpus.lengths()
    links = int(((source_lengths + 1) * target_lengths).sum())
    every = max(1, -(-links // MOST_LINKS))
    sources, targets, places = [], [], []
    count = 0
    for index in range(0, len(corpus), every):
        pair = corpus[index]
        source, target = np.append(pair.source, EOS).astype(np.int64), np.asarray(pair.target, dtype=np.int64)
        sources.append(np.tile(source, len(target)))
        targets.append(np.repeat(target, len(source)))
        places.append(np.repeat(np.arange(count, count + len(target)), len(source)))
        count += len(target)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(places)


def _frequent(corpus: Corpus, most: int) -> npt.NDArray[np.int32]:
    counts: Long = np.zeros(0, dtype=np.int64)
    for index in range(0, len(corpus), max(1, len(corpus) // 100_000)):
        found = np.bincount(np.asarray(corpus[index].target, dtype=np.int64), minlength=len(counts))
        counts = np.concatenate([counts, np.zeros(len(found) - len(counts), dtype=np.int64)]) + found
    return np.argsort(-counts, kind="stable")[:most].astype(np.int32)
