"""What a sitting of a run works with: codecs, encoded pairs, dev examples, task and network.

Each part is made once, written into a folder whole, and read back by later sittings; the recipe is written last.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from seqloom import runtime, weights
from seqloom.api.datasets import Datasets, merged
from seqloom.api.extension import added, carry_over
from seqloom.api.labelled import check_labels
from seqloom.api.learning import Given, Learning, Tell, begun_from
from seqloom.api.load import load_codecs, members, save_codecs, unlike
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.ranking import Protocol, rankings
from seqloom.api.retriever import Retriever
from seqloom.api.staging import PAIRS, RECIPE
from seqloom.batch import Batch
from seqloom.config import Plain, kind_of, render_yaml
from seqloom.data.batching import TokenBatches, in_order
from seqloom.data.codecs import Codecs, Ids
from seqloom.data.corpus import Corpus
from seqloom.data.examples import Example
from seqloom.data.files import Tally
from seqloom.data.filters import Counts
from seqloom.data.readers import files_of
from seqloom.data.recutting import recutting, varying
from seqloom.data.windows import WindowBatches, judged, stream
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, atomic_write
from seqloom.interpreter import ALL, keep_memory
from seqloom.metrics.ranking import CANDIDATES
from seqloom.models.dual import DualEncoder
from seqloom.models.generator import Generator, Network
from seqloom.models.model import MODELS
from seqloom.ranks.group import ALONE, Group
from seqloom.ranks.share import WHOLE, Share
from seqloom.recipe import Recipe
from seqloom.specials import SPECIALS
from seqloom.tasks.base import Loss
from seqloom.training import budget, checkpoints
from seqloom.training.freezing import named
from seqloom.wiring import (
    AnyTask,
    build_model,
    build_task,
    parameters,
    start_from_vectors,
    start_from_weights,
)

CALIBRATION_EXAMPLES = 2_000
CUT_SHARE = 0.001  # of the training targets may be longer than outputs without a word about it


def check_model(recipe: Recipe) -> None:
    """E_RECIPE or E_MEMORY for a model that cannot be built: by its shapes alone, long before any data are read."""
    few = len(SPECIALS) + 1  # tokens; more only make it larger
    read = {name: (extra.use, few) for name, extra in recipe.extras.items() if kind_of(extra.use) != "prefix"}
    sizes: dict[str, object] = {"extras": read} if read else {}

    def built() -> Network:
        return MODELS.build(recipe.model, source_vocabulary=few, target_vocabulary=few, **sizes)

    runtime.check_room(built)
    if recipe.task.next_word:
        network = built()
        assert isinstance(network, Generator), "what says something in place of every token"
        if not all(reader.one_way for reader in network.readers()):
            what = "it asks for the token behind each, and this encoder has seen that"
            fix = "use model.encoder: {kind: rnn, bidirectional: false}, or restore masked tokens (task.restore)"
            raise SeqloomError("E_RECIPE", what, where="task.next_word", fix=fix)


class Prepared:
    """Everything but the loop. Of several processes the first makes what is missing; the others find it there."""

    def __init__(self, recipe: Recipe, folder: Path, tell: Tell, given: Given, ranks: Group = ALONE) -> None:
        self.recipe, self.folder, self.tell, self.leads = recipe, folder, tell, ranks.leads
        self.given = given
        self.device = runtime.apply(recipe.runtime)
        if self.device.type == "cpu":
            keep_memory(ALL)
        self.datasets = Datasets(recipe.data)
        self.codecs = self._codecs()
        self.became: dict[str, Plain] = {}  # of the lines of each set, where this sitting has read them
        self.train_pairs = self._corpus("train", self.datasets.train)
        self.dev_pairs = self._corpus("dev", self.datasets.dev)
        if self.became:
            atomic_write(folder / PAIRS, json.dumps(self.became, indent=1).encode())
            if recipe.model.answers:  # where a text ends that is not searched for is nobody's business
                self._caution_limits()
        self.dev = self._dev_examples()
        self.task: AnyTask = build_task(recipe, self.codecs, self._teachers(), ranks)
        self.network = self._network()
        if recipe.runtime.precision == "auto":
            precision = runtime.fastest(self.device, parameters(self.network))
            self.recipe = recipe.with_(runtime=recipe.runtime.with_(precision=precision))
        if recipe.batching.tokens == "auto":
            self._settle_batches()
        if ranks.leads:
            atomic_write(folder / RECIPE, render_yaml(self.recipe).encode())

    def _codecs(self) -> Codecs:
        folder, recipe = self.folder / "codec", self.recipe
        if not folder.exists():
            learning = Learning(recipe, self.datasets, self.given, self.tell)
            codecs = None if self.given.codec is not None else learning.codecs()
            if codecs is not None:
                check_labels(recipe, codecs, self.datasets.train, self.datasets.named("train"), self.tell)
            with atomic_folder(folder) as new:
                if codecs is not None:
                    save_codecs(recipe, codecs, new)
                else:
                    shutil.copytree(str(self.given.codec), new, dirs_exist_ok=True)
        return load_codecs(recipe, folder)

    def _teachers(self) -> list[Generator]:
        """The networks of `task.teachers`, which read and write as the student does."""
        asked = self.recipe.task.teachers
        found = []
        for run in members(asked.runs) if asked else ():
            teacher = begun_from(run, self.recipe)
            if odd := unlike(self.codecs, teacher.codecs):
                fix = "teach with runs of the same data, text settings and seed of the split"
                what = f"{run} and this run do not read and write alike: {odd}"
                raise SeqloomError("E_RECIPE", what, where="task.teachers", fix=fix)
            assert isinstance(teacher.network, Generator), "what reads and writes alike is of one kind"
            found.append(teacher.network.to(self.device).requires_grad_(False).eval())
        return found

    def _corpus(self, part: str, examples: Callable[[], Iterator[Example]]) -> Corpus:
        folder = self.folder / "cache" / part
        if (folder / "corpus.json").exists():
            return Corpus.open(folder)
        self.datasets.refuse_empty(part, examples)
        keep_text = part == "train" and self.codecs.samples
        before = Counter(self.datasets.tally)
        corpus, counts = Corpus.build(examples(), self.codecs, folder, self.recipe.data.limits, keep_text=keep_text)
        own = part in self.recipe.data.sets  # else it was held out of train, whose lines are told of there
        self._note(part, counts, self.datasets.tally - before if own else Counter())
        return corpus

    def _note(self, part: str, counts: Counts, read: Tally) -> None:
        """Tell, once, what became of the lines of a set, and keep it for the run's report."""
        mended = {"bad_utf8": read.pop("bad_utf8", 0)} if self.recipe.data.on_bad_utf8 == "replace" else {}
        self.became[part] = {"kept": counts.kept, "skipped": counts.skipped | dict(read), "mended": mended}
        told = f"{part}: {counts.kept:,} pairs"
        for end, found in (("skipped", counts.skipped | dict(read)), ("mended", mended)):
            if any(found.values()):
                told += f" ({end}: " + ", ".join(f"{count:,} {name}" for name, count in found.items() if count) + ")"
        self.tell(told)

    def _caution_limits(self) -> None:
        """Tell where predictions would be cut off that should be as long as the targets of training."""
        limits = self.recipe.search.limits
        source, target = (torch.from_numpy(lengths.astype(np.int64)) for lengths in self.train_pairs.lengths())
        positions = source + 1  # with the end of the source
        share = float((target > limits.of(positions)[1]).double().mean())
        if share < CUT_SHARE:
            return
        ratio = math.ceil(10 * float(((target - limits.extra) / positions).max())) / 10
        most = f" and max_length: {int(target.max())}" if limits.max_length is not None else ""
        told = f"{100 * share:.1f} % of the training targets are longer than an output may be"
        self.tell(f"caution: {told}; search.limits: max_ratio: {max(ratio, limits.max_ratio):g}{most} holds them all")

    def place_of(self, index: int) -> str:
        """file:line of a training pair."""
        sizes = self.train_pairs.sizes
        corpus = next(number for number in range(len(sizes)) if index < sum(sizes[: number + 1]))
        return f"{files_of(self.recipe.data.sets['train'][corpus])[0]}:{self.train_pairs.line(index)}"

    def _dev_examples(self) -> list[Example]:
        examples = self.datasets.dev()
        chosen = merged(examples) if self.recipe.evaluation.merge_sources else list(examples)
        asked = [example for example in chosen if example.source.strip() or self.codecs.continues]
        if self.recipe.model.measures:  # no number says how far off an output is from nothing
            asked = [example for example in asked if example.target.strip()]
        return asked[:CALIBRATION_EXAMPLES]

    def _network(self) -> Network:
        network = build_model(self.recipe, self.codecs)
        if self.leads and checkpoints.last(self.folder) is None:  # else its weights replace these
            self._begin(network)
        return network.to(self.device)

    def _begin(self, network: Network) -> None:
        """Weights of the first step that are not random: those of another run, or given word vectors."""
        if self.given.start is None:
            for side, share in start_from_vectors(self.recipe, network, self.codecs).items():
                self.tell(f"{side} vectors: {100 * share:.1f} % of the vocabulary found")
            for part, count in start_from_weights(self.recipe, network).items():
                self.tell(f"{part} weights: {count:,} parameters taken over")
            return
        first = begun_from(self.given.start, self.recipe)
        if self.recipe.training.take:
            self._take(weights.of_model(first.network), network)
            return
        if not self.recipe.training.extend_vocabulary:
            weights.restore(network, weights.of_model(first.network), str(self.given.start))
            return
        carry_over(first.network, first.codecs, network, self.codecs, self.recipe.runtime.seed)
        for side, count in added(first.codecs, self.codecs).items():
            self.tell(f"{side}: {count:,} new piece{'' if count == 1 else 's'}")

    def _take(self, tensors: weights.Weights, network: Network) -> None:
        """Parts of another run's weights, by name."""
        own = weights.of_model(network)
        chosen = named(self.recipe.training.take, list(own), "training.take")
        theirs = {name: tensor for name, tensor in tensors.items() if name in chosen}
        weights.compare({name: own[name] for name in chosen}, theirs, str(self.given.start))
        with torch.no_grad():
            for name in chosen:
                own[name].copy_(tensors[name])
        self.tell(f"taken over: {sum(own[name].numel() for name in chosen):,} of {parameters(network):,} parameters")

    def _settle_batches(self) -> None:
        """Find the size of batches and write it into the effective recipe, where later sittings read it."""
        lengths, settings = np.maximum(*self.train_pairs.lengths()), self.recipe.batching

        def longest(tokens: int) -> Batch:
            rows = in_order(lengths, tokens, settings.sentences)[0]
            return self.task.collate(self.train_pairs.pick(rows)).to(self.device)

        def loss_of(batch: Batch) -> Loss:
            runtime.seed_step(self.recipe.runtime.seed, 0, stream="budget")
            with runtime.autocast(self.device, self.recipe.runtime.precision):
                return self.task.loss(self.network, batch, 1)

        tokens = budget.fitting(self.network, loss_of, longest, len(lengths))
        self.recipe = self.recipe.with_(batching=settings.with_(tokens=tokens))
        self.tell(f"batches of {tokens:,} tokens suit {len(lengths):,} pairs on this machine")

    def batches(self, share: Share = WHOLE) -> TokenBatches | WindowBatches:
        """The training pairs, epoch after epoch: a share of each step's, where several processes train."""
        seed, varies = self.recipe.runtime.seed, self.codecs.source.varies
        batches: TokenBatches | WindowBatches
        if self.recipe.batching.window is not None:
            batches = WindowBatches(self._stream("train", self.train_pairs), self.recipe.batching, seed, share)
        else:
            batches = TokenBatches(
                self.train_pairs,
                self.recipe.batching,
                seed,
                self.task.collate,
                recutting(self.train_pairs, self.codecs, seed) if self.codecs.samples and not varies else None,
                self.recipe.data.mixture(self.train_pairs.sizes),
                varying(self.train_pairs, self.codecs, seed) if varies else None,
                share,
            )
        size, padding = parameters(self.network), batches.padding(0)
        self.tell(f"{size:,} parameters, {batches.count(0):,} batches an epoch, padding {100 * padding:.1f} %")
        return batches

    def _stream(self, part: str, pairs: Corpus) -> Ids:
        sets = self.recipe.data.sets
        return stream(pairs, sets[part if part in sets else "train"][0].flows)

    def dev_batches(self, share: Share = WHOLE) -> Iterator[Batch]:
        """The dev pairs once, longest first; a text that is read in windows in parts, each after what stands before."""
        batching = self.recipe.batching
        if batching.window is not None:
            parts = judged(self._stream("dev", self.dev_pairs), batching.window, batching.budget)
            yield from (part for place, part in enumerate(parts) if share.rows(place, len(part)) is not None)
            return
        for place, rows in enumerate(in_order(np.maximum(*self.dev_pairs.lengths()), batching.budget)):
            if share.rows(place, len(rows)) is not None:
                yield self.task.collate(self.dev_pairs.pick(rows))

    def model(self) -> Model:
        """The network as it stands, with text on both sides; it predicts in float32 as it will when it is loaded."""
        assert isinstance(self.network, Generator)
        return Model(self._name, self._precise, self.codecs, self.network, device=self.device)

    def retriever(self) -> Retriever:
        """The same where the network ranks texts."""
        assert isinstance(self.network, DualEncoder)
        return Retriever(self._name, self._precise, self.codecs, self.network, self.device)

    @property
    def _name(self) -> str:
        return self.folder.absolute().name

    @property
    def _precise(self) -> Recipe:
        return self.recipe.with_(runtime=self.recipe.runtime.with_(precision="float32"))

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """What the network says to examples, quickly: the text that a greedy search finds, or a ranked list of all."""
        if self.recipe.model.ranks:
            protocol = Protocol(self.recipe.evaluation.among).within(examples)
            return rankings(self.retriever(), examples, protocol)
        options = Options(beam=1, split=False, on_long="skip")
        return [prediction.text for prediction in self.model().predict([e.inputs for e in examples], options)]

    def shown(self, examples: Sequence[Example]) -> list[str]:
        """The answers that a person is shown: of a list the best, ranked among all that validation ranks."""
        if not self.recipe.model.ranks:
            return self.answers(examples)
        judged = [*examples, *self.dev[: self.recipe.evaluation.validate_examples]]
        return [one.split(CANDIDATES)[0] for one in self.answers(judged)[: len(examples)]]
