"""What a sitting of a run works with: codecs, encoded pairs, dev examples, task and network.

Each part is made once, written into the run folder whole, and read back by later sittings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np

from seqloom import runtime, weights
from seqloom.api.datasets import Datasets, merged
from seqloom.api.extension import added, carry_over, extended
from seqloom.api.folder import RECIPE
from seqloom.api.load import load, load_codecs, save_codecs
from seqloom.api.model import Model
from seqloom.batch import Batch
from seqloom.config import render_yaml
from seqloom.data.batching import TokenBatches, in_order
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Pair
from seqloom.data.corpus import Corpus
from seqloom.data.examples import Example
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, atomic_write
from seqloom.models.generator import Generator
from seqloom.recipe import Recipe, build_model, build_task, joined_codecs, parameters, start_from_vectors
from seqloom.tasks.base import Loss
from seqloom.tasks.transduce import Transduce
from seqloom.training import budget, checkpoints

CALIBRATION_EXAMPLES = 2_000
Tell = Callable[[str], None]


class Prepared:
    """Everything but the loop. `start` is a run whose weights and tokens to begin with (fine-tuning)."""

    def __init__(self, recipe: Recipe, folder: Path, tell: Tell, start: Path | None) -> None:
        self.recipe, self.folder, self.tell, self.start = recipe, folder, tell, start
        self.device = runtime.apply(recipe.runtime)
        self.datasets = Datasets(recipe.data)
        self.codecs = self._codecs()
        self.train_pairs = self._corpus("train", self.datasets.train)
        self.dev_pairs = self._corpus("dev", self.datasets.dev)
        self.dev = self._dev_examples()
        self.task: Transduce = build_task(recipe, self.codecs)
        self.network = self._network()
        if recipe.batching.tokens == "auto":
            self._settle_batches()

    def _codecs(self) -> Codecs:
        folder, recipe = self.folder / "codec", self.recipe
        if not folder.exists():
            codecs = self._trained_codecs()
            with atomic_folder(folder) as new:
                save_codecs(recipe, codecs, new)
        return load_codecs(recipe, folder)

    def _trained_codecs(self) -> Codecs:
        """Learned from the training pairs; by the split's seed, so that runs of other seeds share their tokens."""
        recipe, train = self.recipe, self.datasets.train
        if self.start is not None:
            first = self._first(self.start)
            _check_same_text(recipe, first.recipe, self.start)
            return extended(recipe, first.codecs, train) if recipe.training.extend_vocabulary else first.codecs
        if recipe.training.extend_vocabulary:
            fix = "begin from a run (--from RUN), or leave it out"
            raise SeqloomError(
                "E_RECIPE", "there is no vocabulary to extend", where="training.extend_vocabulary", fix=fix
            )

        def trained(settings: TextCodec.Settings, *sides: str) -> TextCodec:
            def texts() -> Iterator[str]:
                named = ({"source": one.source, "target": one.target, **one.extras} for one in train())
                return (texts[side] for texts in named for side in sides)

            return TextCodec.train(settings, texts, recipe.data.split.seed)

        extras = {name: trained(settings, name) for name, settings in recipe.extras.items()}
        if recipe.model.one_vocabulary:
            both = trained(recipe.source, "source", "target")
            return joined_codecs(recipe, both, both, extras)
        return joined_codecs(recipe, trained(recipe.source, "source"), trained(recipe.target, "target"), extras)

    def _first(self, start: Path) -> Model:
        """The run to begin from. Loading it sets this process up to predict, which is taken back."""
        model = load(start, device="cpu")
        runtime.apply(self.recipe.runtime)
        return model

    def _corpus(self, part: str, examples: Callable[[], Iterator[Example]]) -> Corpus:
        folder = self.folder / "cache" / part
        if (folder / "corpus.json").exists():
            return Corpus.open(folder)
        first = next(examples(), None)
        if first is None:
            what = f"the {part} set is empty: too few different sources to hold some out"
            raise SeqloomError("E_EMPTY", what, where=f"data.{part}", fix=f"give data.{part} a file, or more pairs")
        keep_text = part == "train" and self.codecs.samples
        corpus, counts = Corpus.build(examples(), self.codecs, folder, self.recipe.data.limits, keep_text=keep_text)
        skipped = ", ".join(f"{count:,} {name}" for name, count in counts.skipped.items() if count)
        self.tell(f"{part}: {counts.kept:,} pairs" + (f" (skipped: {skipped})" if skipped else ""))
        return corpus

    def _dev_examples(self) -> list[Example]:
        examples = self.datasets.dev()
        chosen = merged(examples) if self.recipe.evaluation.merge_sources else list(examples)
        return [example for example in chosen if example.source.strip()][:CALIBRATION_EXAMPLES]

    def _network(self) -> Generator:
        network = build_model(self.recipe, self.codecs)
        if checkpoints.last(self.folder) is None:  # else its weights replace these
            self._begin(network)
        return network.to(self.device)

    def _begin(self, network: Generator) -> None:
        """Weights of the first step that are not random: those of another run, or given word vectors."""
        if self.start is None:
            for side, share in start_from_vectors(self.recipe, network, self.codecs).items():
                self.tell(f"{side} vectors: {share:.1%} of the vocabulary found")
            return
        first = self._first(self.start)
        if not self.recipe.training.extend_vocabulary:
            weights.restore(network, weights.of_model(first.network), str(self.start))
            return
        carry_over(first.network, first.codecs, network, self.codecs, self.recipe.runtime.seed)
        for side, count in added(first.codecs, self.codecs).items():
            self.tell(f"{side}: {count:,} new piece{'' if count == 1 else 's'}")

    def _settle_batches(self) -> None:
        """Find the size of batches and write it into the effective recipe, where later sittings read it."""
        lengths, settings = np.maximum(*self.train_pairs.lengths()), self.recipe.batching

        def longest(tokens: int) -> Batch:
            rows = in_order(lengths, tokens, settings.sentences)[0]
            return self.task.collate([self.train_pairs[int(row)] for row in rows]).to(self.device)

        def loss_of(batch: Batch) -> Loss:
            runtime.seed_step(self.recipe.runtime.seed, 0, stream="budget")
            with runtime.autocast(self.device, self.recipe.runtime.precision):
                return self.task.loss(self.network, batch, 1)

        tokens = budget.fitting(self.network, loss_of, longest, len(lengths))
        self.recipe = self.recipe.with_(batching=settings.with_(tokens=tokens))
        atomic_write(self.folder / RECIPE, render_yaml(self.recipe).encode())
        self.tell(f"batches of {tokens:,} tokens suit {len(lengths):,} pairs on this machine")

    def batches(self) -> TokenBatches:
        """The training pairs, epoch after epoch."""

        def resample(pair: Pair, rng: Random) -> Pair:
            return self.train_pairs.resampled(pair, self.codecs, rng)

        batches = TokenBatches(
            self.train_pairs,
            self.recipe.batching,
            self.recipe.runtime.seed,
            self.task.collate,
            resample if self.codecs.samples else None,
            self.recipe.data.mixture(self.train_pairs.sizes),
        )
        size, padding = parameters(self.network), batches.padding(0)
        self.tell(f"{size:,} parameters, {batches.count(0):,} batches an epoch, padding {padding:.1%}")
        return batches

    def model(self) -> Model:
        """The network as it stands, with text on both sides."""
        name = self.folder.name
        return Model(name, self.recipe, self.codecs, self.network, device=self.device)


def _check_same_text(recipe: Recipe, first: Recipe, start: Path) -> None:
    """Weights go with the tokens they were trained on: a fine-tuned run uses the first one's codecs."""
    sides = ("source", "target", "extras")
    mine, theirs = (one.model_dump(mode="json", include=set(sides)) for one in (recipe, first))
    for side in sides:
        if mine[side] != theirs[side]:
            what = f"{side}: {mine[side]}, but the run to begin from has {theirs[side]}"
            raise SeqloomError("E_RECIPE", what, where=str(start), fix=f"give `{side}` the same settings")
