"""A loaded dual encoder: sources and candidate texts in, vectors or ranked candidates out.

It answers like every other model, one prediction per line, so that the command line asks it in the same way; what it
answers with are texts of an index. It writes no file and prints nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from seqloom import runtime
from seqloom.api.asked import Asked
from seqloom.api.datasets import Datasets
from seqloom.api.exported import weights_of
from seqloom.api.index import FOLDER, Index, distinct
from seqloom.api.load import model_settings, opened
from seqloom.api.predictions import Output, Prediction, passed_over
from seqloom.api.reading import CHUNK_LINES, Piece, Place, Reader
from seqloom.config import Plain, kind_of
from seqloom.data.batching import collate_sources, ended, in_order
from seqloom.data.codecs import Codecs, Encoded
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.models.dual import DualEncoder
from seqloom.recipe import Recipe
from seqloom.shapes import Float, Tensor
from seqloom.wiring import parameters

BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Ranking(Prediction):
    """The answer to one source: candidates of an index, the best first; `score` is their similarity."""

    def as_dict(self) -> dict[str, Plain]:
        """No confidence is promised: that a text is the best of an index does not make it right."""
        candidates: list[Plain] = [{"text": one.text, "score": one.score} for one in self.hypotheses]
        extras = {"extras": dict(self.extras)} if self.extras else {}
        found = [] if self.skipped else candidates
        return {
            "source": self.source, **extras, "text": self.text, "unknown": self.unknown, "skipped": self.skipped,
            "candidates": found,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"Ranking({self.text!r}, score={self.score:.3f})"


@dataclass
class Retriever:
    """`retriever("text", top=5)` gives a `Ranking`; it needs an index, as `index` or in its run folder."""

    name: str
    recipe: Recipe
    codecs: Codecs
    network: DualEncoder
    device: torch.device
    home: Path | None = None  # the bundle's folder
    place: Path | None = None  # of the index; null: beside the bundle

    def __post_init__(self) -> None:
        self.network.to(self.device).eval()

    def __call__(self, text: Inputs, top: int = 1) -> Ranking:
        """The best candidates for one text."""
        return next(self.predict([text], Asked(n_best=top, split=False)))

    # --- the index ---------------------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> Index:
        """The candidates to answer with; E_BUNDLE where there is no index yet, or a stale one."""
        index = Index.load(self.index_folder, self.computed_by, self.indexing)
        if index.vectors.shape[1] != self.network.width:
            what = f"vectors of {index.vectors.shape[1]} numbers, the run's have {self.network.width}"
            raise SeqloomError("E_BUNDLE", what, where=str(self.index_folder), fix=self.indexing)
        return replace(index, vectors=index.vectors.to(self.device))

    @property
    def index_folder(self) -> Path:
        return self.place or (self.home or Path()).parent / FOLDER

    @property
    def computed_by(self) -> str:
        """The sha256 of the weights that this model has."""
        return weights_of(self.home or Path())

    @property
    def indexing(self) -> str:
        """The command that makes the index, as a fix."""
        run = shlex.quote(str((self.home or Path()).parent))
        where = "" if self.place is None else f" --output {shlex.quote(str(self.place))}"
        return f"'seqloom index {run}{where}' makes one of the training targets"

    def indexed(self, texts: Iterable[str]) -> tuple[Index, int]:
        """An index of these texts, each once, and how many were left out because they are over the recipe's maximum."""
        every = distinct(texts)
        kept = tuple(text for text in every if self.fits(text))
        return Index(kept, self.candidates(kept)), len(every) - len(kept)

    def fits(self, text: str) -> bool:
        """Has a candidate something to read, and no more than the recipe's maximum?"""
        return 0 < len(self.codecs.target.encode(text)) <= self.recipe.data.limits.max_target

    # --- vectors -----------------------------------------------------------------------------------------------------

    def candidates(self, texts: Sequence[str]) -> Float[Tensor, "N D"]:
        """The vector of each text that may be an answer, in order."""
        ids = [np.array(self.codecs.target.encode(text), dtype=np.int64) for text in texts]
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        return self._vectors(
            lengths, lambda rows: self.network.candidates(ended([ids[row] for row in rows]).to(self.device))
        )

    def queries(self, encoded: Sequence[Encoded]) -> Float[Tensor, "N D"]:
        """The vector of each encoded source, in order."""
        lengths = np.array([one.length for one in encoded], dtype=np.int64)

        def some(rows: Sequence[int]) -> Tensor:
            sources = collate_sources([encoded[row] for row in rows])
            return self.network.queries({name: source.to(self.device) for name, source in sources.items()})

        return self._vectors(lengths, some)

    @torch.inference_mode()
    def _vectors(
        self, lengths: np.ndarray[tuple[int], np.dtype[np.int64]], vectors_of: Callable[[Sequence[int]], Tensor]
    ) -> Float[Tensor, "N D"]:
        """Batched by length, and put back in order."""
        found = torch.zeros(len(lengths), self.network.width, device=self.device)
        with runtime.autocast(self.device, self.recipe.runtime.precision):
            for rows in in_order(lengths, BATCH_TOKENS):
                found[torch.from_numpy(rows)] = vectors_of(rows.tolist())
        if not found.isfinite().all():  # they would be near nothing and far from nothing
            raise SeqloomError("E_DIVERGED", "the model's vectors are not numbers", fix="check its weights")
        return found

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict(
        self, texts: Iterable[Inputs], asked: Asked, chunk: int = CHUNK_LINES, name: str = "", first: int = 1
    ) -> Iterator[Ranking]:
        """One ranking of `asked.n_best` candidates per text, in order. Empty lines give empty answers."""
        self.asking(asked)
        flat = map(_on_one_line, texts)
        for answer in self.reader.predictions(
            flat, asked, lambda pieces: self._answers(pieces, asked), chunk, Place(name, first)
        ):
            yield _ranking(answer)

    def refuse_long(self, texts: Iterable[Inputs], asked: Asked, name: str = "", first: int = 1) -> None:
        """Look for sources over the recipe's maximum that were not provided for, before the first answer."""
        self.reader.refuse_long(map(_on_one_line, texts), asked, Place(name, first))

    def asking(self, asked: Asked) -> None:
        """E_USAGE for what cannot be met."""
        if asked.n_best > len(self.index):
            what = f"top {asked.n_best:,}: the index has {len(self.index):,} candidates"
            fix = f"at most --top {len(self.index)}, or an index of more"
            raise SeqloomError("E_USAGE", what, where=str(self.index_folder), fix=fix)
        if asked.on_long == "split":
            raise SeqloomError("E_USAGE", "on_long: split: a ranking is of a whole source", fix="--on-long skip")

    @cached_property
    def reader(self) -> Reader:
        limits = self.recipe.data.limits
        return Reader(self.codecs, limits.max_source, limits.max_extra, None)

    def _answers(self, texts: Sequence[Piece], asked: Asked) -> list[Prediction]:
        encoded, faults = self.reader.encoded(texts)
        answers = [passed_over(text, extras, faults.get(place)) for place, (text, extras) in enumerate(texts)]
        scores, places = self.index.nearest(self.queries([*encoded.values()]), asked.n_best)
        for row, (place, read) in enumerate(encoded.items()):
            found = zip(scores[row].tolist(), places[row].tolist(), strict=True)
            outputs = tuple(_candidate(self.index.texts[one], score) for score, one in found)
            unknown = read.unknown / max(1, len(read.source))
            text, extras = texts[place]
            answers[place] = Prediction(text, outputs, 0.0, unknown, len(read.source), extras=extras)
        return answers

    def __repr__(self) -> str:
        kinds = " and ".join(kind_of(part) for part in self.recipe.model.parts.values())
        return f"Retriever({self.name!r}, {kinds}, {parameters(self.network):,} parameters)"


def _candidate(text: str, score: float) -> Output:
    return Output(text=text, tokens=(), token_scores=(), log_prob=0.0, score=score, truncated=False)


def _ranking(one: Prediction) -> Ranking:
    return Ranking(one.source, one.hypotheses, one.confidence, one.unknown, one.length, one.skipped, one.extras)


def _on_one_line(inputs: Inputs) -> Inputs:
    """A source is compared as a whole, so its lines are not answered one by one."""
    if isinstance(inputs, Mapping):
        return {**inputs, "source": " ".join(inputs["source"].splitlines())} if "source" in inputs else inputs
    return " ".join(inputs.splitlines())


# --- opening -------------------------------------------------------------------------------------------------------


def load_retriever(
    run: str | Path,
    *,
    index: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    settings: Sequence[str] = (),
    allow_nonfinite: bool = False,
) -> Retriever:
    """Open a run or bundle of a dual encoder; `index` is a folder that `seqloom index --output` wrote."""
    read = opened(run, device=device, threads=threads, settings=settings, allow_nonfinite=allow_nonfinite)
    if not read.recipe.model.ranks:
        what = f"this run writes texts and ranks none (model: {kind_of(read.recipe.model)})"
        raise SeqloomError("E_USAGE", what, where=str(run), fix="only a run of model: dual ranks candidates")
    assert isinstance(read.network, DualEncoder)
    place = None if index is None else Path(index)
    return Retriever(read.name, read.recipe, read.codecs, read.network, read.device, read.bundle.folder, place)


def training_targets(retriever: Retriever) -> Iterator[str]:
    """The targets of the data that a run was trained on: the candidates, unless others are given."""
    examples = Datasets(retriever.recipe.data).train()
    return (text for example in examples for text in example.references)


def ranks(run: str | Path) -> bool:
    """Is this the folder of a run that ranks texts?"""
    model = model_settings(run)
    return model is not None and model.ranks
