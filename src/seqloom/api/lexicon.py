"""`seqloom.learn_lexicon("runs/x")`: what the tokens of a run's sources lead to, for predictions with a shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.config import Plain
from seqloom.data.codecs import Ids
from seqloom.data.corpus import Corpus
from seqloom.data.lexicon import KEPT, NONE, Lexicon
from seqloom.errors import SeqloomError

COUNTS = (10, 20, 50, 100)  # sizes of shortlists whose coverage is told


@dataclass(frozen=True)
class LearnedLexicon:
    """Where it lies, and of the dev targets' tokens the share that shortlists of some sizes hold."""

    path: Path
    pairs: int
    shares: dict[int, float]

    def as_dict(self) -> dict[str, Plain]:
        return {**asdict(self), "path": str(self.path), "shares": {str(k): v for k, v in self.shares.items()}}


def learn_lexicon(run: str | Path) -> LearnedLexicon:
    """Learn the lexicon of a run from its training pairs and write it into the run."""
    folder = Path(run)
    model = load(folder, device="cpu", packed=False)
    train, dev = (folder / "cache" / part for part in ("train", "dev"))
    if not train.is_dir():
        what = "there are no training pairs here to learn from"
        raise SeqloomError("E_FILE", what, where=str(folder), fix="name the run itself, with its cache")
    corpus = Corpus.open(train)
    lexicon = Lexicon.learn(corpus, (len(model.source.vocabulary), len(model.target.vocabulary)))
    held_out = Corpus.open(dev) if dev.is_dir() else corpus
    pairs = [(cast(Ids, held_out[index].source), held_out[index].target) for index in range(min(1000, len(held_out)))]
    shares = {count: lexicon.share(pairs, count) for count in COUNTS if count <= KEPT}
    return LearnedLexicon(lexicon.save(folder), len(corpus), shares)


def leads_to(model: Model, text: str, count: int = 10) -> list[tuple[str, Sequence[str]]]:
    """For every token of a text, the target tokens that it leads to, the likeliest first."""
    shown, words = model.source.vocabulary.piece, model.target.vocabulary.piece
    ids = model.codecs.encode(text).source.tolist()
    rows = model.lexicon.leads_to[ids][:, :count].tolist()
    return [(shown(one), [words(token) for token in row if token != NONE]) for one, row in zip(ids, rows, strict=True)]
