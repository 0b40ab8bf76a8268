"""What a sitting of a run works with: codecs, encoded pairs, dev examples, task and network.

Each part is made once, written into the run folder whole, and read back by later sittings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from seqloom import runtime, weights
from seqloom.api.datasets import Datasets, merged
from seqloom.api.load import load, load_codecs, save_codecs
from seqloom.api.model import Model
from seqloom.data.batching import TokenBatches
from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Corpus, Pair
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder
from seqloom.models.generator import Generator
from seqloom.recipe import Recipe, build_model, build_task, parameters, start_from_vectors
from seqloom.tasks.transduce import Transduce
from seqloom.training import checkpoints

CALIBRATION_EXAMPLES = 2_000
Tell = Callable[[str], None]


class Prepared:
    """Everything but the loop. `start` is a run whose weights and tokens to begin with (fine-tuning)."""

    def __init__(self, recipe: Recipe, folder: Path, tell: Tell, start: Path | None) -> None:
        self.recipe, self.folder, self.tell, self.start = recipe, folder, tell, start
        self.device = runtime.apply(recipe.runtime)
        self.datasets = Datasets(recipe.data)
        self.source, self.target = self._codecs()
        self.train_pairs = self._corpus("train", self.datasets.train)
        self.dev_pairs = self._corpus("dev", self.datasets.dev)
        self.dev = self._dev_examples()
        self.task: Transduce = build_task(recipe, self.source, self.target)
        self.network = self._network()

    def _codecs(self) -> tuple[TextCodec, TextCodec]:
        folder, recipe = self.folder / "codec", self.recipe
        if not folder.exists():
            source, target = self._trained_codecs()
            with atomic_folder(folder) as new:
                save_codecs(recipe, source, target, new)
        return load_codecs(recipe, folder)

    def _trained_codecs(self) -> tuple[TextCodec, TextCodec]:
        """Learned from the training pairs; by the split's seed, so that runs of other seeds share their tokens."""
        recipe, train, seed = self.recipe, self.datasets.train, self.recipe.data.split.seed
        if self.start is not None:
            first = load(self.start)
            _check_same_text(recipe, first.recipe, self.start)
            return first.source, first.target
        if recipe.model.one_vocabulary:
            both = TextCodec.train(recipe.source, lambda: _both_sides(train()), seed)
            return both, both
        source = TextCodec.train(recipe.source, lambda: (example.source for example in train()), seed)
        target = TextCodec.train(recipe.target, lambda: (example.target for example in train()), seed)
        return source, target

    def _corpus(self, part: str, examples: Callable[[], Iterator[Example]]) -> Corpus:
        folder = self.folder / "cache" / part
        if (folder / "corpus.json").exists():
            return Corpus.open(folder)
        first = next(examples(), None)
        if first is None:
            what = f"the {part} set is empty: too few different sources to hold some out"
            raise SeqloomError("E_EMPTY", what, where=f"data.{part}", fix=f"give data.{part} a file, or more pairs")
        keep_text = part == "train" and self._samples_pieces()
        corpus, counts = Corpus.build(
            examples(), self.source, self.target, folder, self.recipe.data.limits, keep_text=keep_text
        )
        skipped = ", ".join(f"{count:,} {name}" for name, count in counts.skipped.items() if count)
        self.tell(f"{part}: {counts.kept:,} pairs" + (f" (skipped: {skipped})" if skipped else ""))
        return corpus

    def _samples_pieces(self) -> bool:
        return self.source.tokenizer.samples or self.target.tokenizer.samples

    def _dev_examples(self) -> list[Example]:
        examples = self.datasets.dev()
        chosen = merged(examples) if self.recipe.evaluation.merge_sources else list(examples)
        return [example for example in chosen if example.source.strip()][:CALIBRATION_EXAMPLES]

    def _network(self) -> Generator:
        network = build_model(self.recipe, self.source, self.target)
        if self.start is not None and checkpoints.last(self.folder) is None:
            weights.restore(network, weights.of_model(load(self.start).network), str(self.start))
        for side, share in start_from_vectors(self.recipe, network, self.source, self.target).items():
            self.tell(f"{side} vectors: {share:.1%} of the vocabulary found")
        return network.to(self.device)

    def batches(self) -> TokenBatches:
        """The training pairs, epoch after epoch."""

        def resample(pair: Pair, rng: Random) -> Pair:
            return self.train_pairs.resampled(pair, self.source, self.target, rng)

        batches = TokenBatches(
            self.train_pairs,
            self.recipe.batching,
            self.recipe.runtime.seed,
            self.task.collate,
            resample if self._samples_pieces() else None,
        )
        size, padding = parameters(self.network), batches.padding(0)
        self.tell(f"{size:,} parameters, {batches.count(0):,} batches an epoch, padding {padding:.1%}")
        return batches

    def model(self) -> Model:
        """The network as it stands, with text on both sides."""
        name = self.folder.name
        return Model(name, self.recipe, self.source, self.target, self.network, device=self.device)


def _check_same_text(recipe: Recipe, first: Recipe, start: Path) -> None:
    """Weights go with the tokens they were trained on: a fine-tuned run uses the first one's codecs."""
    for side, mine, theirs in (("source", recipe.source, first.source), ("target", recipe.target, first.target)):
        if mine != theirs:
            have, wanted = mine.model_dump(mode="json"), theirs.model_dump(mode="json")
            what = f"{side}: {have}, but the run to begin from has {wanted}"
            raise SeqloomError("E_RECIPE", what, where=str(start), fix=f"give `{side}` the same settings")


def _both_sides(examples: Iterator[Example]) -> Iterator[str]:
    for example in examples:
        yield example.source
        yield example.target
