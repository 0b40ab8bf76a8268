"""`seqloom.train("recipe.yaml")`: from a recipe to a run folder with the best bundle in it.

A run folder holds `recipe.yaml` (effective), `data.json` (fingerprints), `codec/`, `cache/` (encoded pairs),
`metrics.jsonl`, `checkpoints/` and `bundle/`. The same call resumes; a finished run is returned as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import torch
from torch import nn

from seqloom import bundle, runtime, weights
from seqloom.api.datasets import Datasets, check_unchanged, fingerprints, merged
from seqloom.api.folder import (
    DATA,
    FINISHED,
    METRICS,
    RECIPE,
    check_readable,
    effective,
    finished_reason,
    is_finished,
    located,
    started_from,
)
from seqloom.api.load import load, load_codecs, save_codecs
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.config import Plain, kind_of, render_yaml
from seqloom.data.batching import TokenBatches, in_order
from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Corpus, Counts, Pair
from seqloom.data.readers import Example
from seqloom.data.sentences import split_sentences
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, atomic_write
from seqloom.metrics.calibration import Calibration, correct_outputs
from seqloom.metrics.perplexity import perplexity
from seqloom.models.model import Generator
from seqloom.recipe import (
    Recipe,
    build_model,
    build_task,
    parameters,
    start_from_vectors,
)
from seqloom.shapes import Tensor
from seqloom.tasks.transduce import Transduce
from seqloom.training import checkpoints
from seqloom.training.averaging import average
from seqloom.training.events import Checkpoint, Event, Finished, Sample
from seqloom.training.lock import RunLock
from seqloom.training.loop import fit
from seqloom.training.observers import CheckpointKeeper, JsonLines, Observer, TensorBoard

CALIBRATION_EXAMPLES = 2_000
SAMPLED_LINES = 5_000  # of the training sources, to learn whether lines are sentences
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A run folder. `model` is its best bundle; `finished` says why it ended, if it did."""

    folder: Path
    reason: str | None = None

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def model(self) -> Model:
        return load(self.folder)

    @property
    def metrics(self) -> list[dict[str, object]]:
        """The lines of `metrics.jsonl`."""
        text = (self.folder / METRICS).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.reason or 'unfinished'})"


@dataclass
class Wishes:
    """How to train, besides the recipe."""

    observers: Sequence[Observer] = ()
    stop: Callable[[], str | None] = lambda: None
    tell: Tell = lambda line: None  # one line of talk at a time
    allow_data_change: bool = False
    start: Path | None = None  # a run whose weights to begin with (fine-tuning)
    replace: bool = False  # discard what the run folder holds of another recipe
    extra: Mapping[str, Plain] = field(default_factory=dict)


def train(
    recipe: str | Path | Recipe,
    run: str | Path | None = None,
    settings: Sequence[str] = (),
    wishes: Wishes | None = None,
) -> Run:
    """Train a recipe in a run folder (default `runs/<recipe>`), or go on where it stopped."""
    wishes = wishes or Wishes()
    wanted, folder = located(recipe, run, settings)
    if not (folder / RECIPE).exists():
        check_readable(wanted.data)
    with RunLock(folder):
        chosen, told = effective(wanted, folder, wishes.replace)
        start = started_from(folder, wishes.start)
        check_unchanged(chosen.data, folder / DATA, wishes.allow_data_change)
        if is_finished(folder):
            wishes.tell(f"{folder} is finished already")
            return Run(folder, finished_reason(folder))
        for line in told:
            wishes.tell(line)
        return _Training(chosen, folder, replace(wishes, start=start)).run()


class _Training:
    """One sitting of one run: prepare, fit, keep."""

    def __init__(self, recipe: Recipe, folder: Path, wishes: Wishes) -> None:
        self.recipe, self.folder, self.wishes = recipe, folder, wishes
        self.device = runtime.apply(recipe.runtime)
        self.datasets = Datasets(recipe.data)
        self.source, self.target = self._codecs()
        self.train_pairs, self.counts = self._corpus("train", self.datasets.train)
        self.dev_pairs, _ = self._corpus("dev", self.datasets.dev)
        self.dev = self._dev_examples()
        self.metrics = recipe.evaluation.build()
        self.task: Transduce = build_task(recipe, self.source, self.target)
        self.network = self._network()

    # --- preparation -------------------------------------------------------------------------------------------------

    def _codecs(self) -> tuple[TextCodec, TextCodec]:
        folder, recipe = self.folder / "codec", self.recipe
        if not folder.exists():
            source, target = self._trained_codecs()
            with atomic_folder(folder) as new:
                save_codecs(recipe, source, target, new)
        return load_codecs(recipe, folder)

    def _trained_codecs(self) -> tuple[TextCodec, TextCodec]:
        recipe, train = self.recipe, self.datasets.train
        if self.wishes.start is not None:
            first = load(self.wishes.start)
            _check_same_text(recipe, first.recipe, self.wishes.start)
            return first.source, first.target
        seed = recipe.runtime.seed
        if recipe.model.shared:
            both = TextCodec.train(recipe.source, lambda: _both_sides(train()), seed)
            return both, both
        source = TextCodec.train(recipe.source, lambda: (example.source for example in train()), seed)
        target = TextCodec.train(recipe.target, lambda: (example.target for example in train()), seed)
        return source, target

    def _corpus(self, part: str, examples: Callable[[], Iterator[Example]]) -> tuple[Corpus, Counts | None]:
        folder = self.folder / "cache" / part
        if (folder / "corpus.json").exists():
            return Corpus.open(folder), None
        keep_text = part == "train" and self._samples_pieces()
        corpus, counts = Corpus.build(
            examples(), self.source, self.target, folder, self.recipe.data.limits, keep_text=keep_text
        )
        skipped = ", ".join(f"{count:,} {name}" for name, count in counts.skipped.items() if count)
        self.wishes.tell(f"{part}: {counts.kept:,} pairs" + (f" (skipped: {skipped})" if skipped else ""))
        return corpus, counts

    def _samples_pieces(self) -> bool:
        return self.source.tokenizer.samples or self.target.tokenizer.samples

    def _dev_examples(self) -> list[Example]:
        examples = self.datasets.dev()
        chosen = merged(examples) if self.recipe.evaluation.merge_sources else list(examples)
        return [example for example in chosen if example.source.strip()][:CALIBRATION_EXAMPLES]

    def _network(self) -> Generator:
        network = build_model(self.recipe, self.source, self.target)
        if self.wishes.start is not None and checkpoints.last(self.folder) is None:
            weights.restore(network, weights.of_model(load(self.wishes.start).network), str(self.wishes.start))
        for side, share in start_from_vectors(self.recipe, network, self.source, self.target).items():
            self.wishes.tell(f"{side} vectors: {share:.1%} of the vocabulary found")
        return network.to(self.device)

    # --- training ----------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        recipe = self.recipe
        batches = TokenBatches(
            self.train_pairs,
            recipe.batching,
            recipe.runtime.seed,
            self.task.collate,
            self._resample if self._samples_pieces() else None,
        )
        self.wishes.tell(
            f"{parameters(self.network):,} parameters, {batches.count(0):,} batches an epoch, "
            f"padding {batches.padding(0):.1%}"
        )
        last = checkpoints.last(self.folder)
        events = fit(
            self.task,
            self.network,
            batches,
            recipe.training,
            validate=self.validate,
            seed=recipe.runtime.seed,
            resume=checkpoints.load(last) if last is not None else None,
            stop=self.wishes.stop,
            samples=self.samples,
        )
        reason = self._listen(events)
        if reason not in ("preempted", "interrupted"):
            self._finish(reason)
        return Run(self.folder, reason)

    def _listen(self, events: Iterator[Event]) -> str:
        keep = max(2, self.recipe.training.average or 0)
        with ExitStack() as stack:
            log = stack.enter_context(JsonLines(self.folder / METRICS))
            board = [TensorBoard(self.folder / "board")] if TensorBoard.available() else []
            observers: list[Observer] = [log, *board, CheckpointKeeper(self.folder, keep), *self.wishes.observers]
            reason = "interrupted"
            for event in events:
                for observer in observers:
                    observer(event)
                if isinstance(event, Checkpoint) and event.best:
                    self._write_bundle(event.snapshot().weights(), {})
                if isinstance(event, Finished):
                    reason = event.reason
        return reason

    def _resample(self, pair: Pair, rng: Random) -> Pair:
        return self.train_pairs.resampled(pair, self.source, self.target, rng)

    def validate(self, network: nn.Module) -> Mapping[str, float]:
        """Loss on all dev pairs; the recipe's metrics on the first of them, decoded greedily."""
        assert isinstance(network, Generator)
        total, count = 0.0, 0
        lengths = self.dev_pairs.lengths()
        for rows in in_order(torch.maximum(*map(torch.from_numpy, lengths)).numpy(), self.recipe.batching.tokens):
            batch = self.task.collate([self.dev_pairs[int(row)] for row in rows])
            loss = self.task.loss(network, batch.to(self.device), 0)
            total, count = total + float(loss.nll), count + int(loss.count)
        values = {"nll": total / count, "perplexity": perplexity(total, count)}
        chosen = self.dev[: self.recipe.evaluation.validate_examples]
        if chosen:
            outputs = self._outputs(chosen, Options(beam=1, split=False, on_long="skip"))
            references = [example.references for example in chosen]
            for settings, metric in zip(self.recipe.evaluation.metrics, self.metrics, strict=True):
                values[kind_of(settings)] = metric.score(outputs, references)
        return values

    def samples(self, network: nn.Module) -> list[Sample]:
        chosen = self.dev[: self.recipe.evaluation.show]
        outputs = self._outputs(chosen, Options(beam=1, split=False, on_long="skip"))
        return [Sample(example.source, text, example.target) for example, text in zip(chosen, outputs, strict=True)]

    def _outputs(self, examples: Sequence[Example], options: Options) -> list[str]:
        try:
            return [prediction.text for prediction in self._model().predict([e.source for e in examples], options)]
        except SeqloomError as error:
            if error.code != "E_DIVERGED":
                raise
            fix = "begin anew with a lower lr, or with clip: 1.0"
            raise SeqloomError("E_DIVERGED", f"at a validation {error.what}", where=str(self.folder), fix=fix) from None

    def _model(self, calibration: Calibration | None = None) -> Model:
        return Model(
            self.folder.name,
            self.recipe,
            self.source,
            self.target,
            self.network,
            {},
            calibration or Calibration(),
            self.device,
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, reason: str) -> None:
        """Take the best weights, calibrate on dev, write the bundle, and only then call the run finished."""
        tensors, values = self._best_weights()
        calibration = self._calibrated()
        lines = [example.source for _, example in zip(range(SAMPLED_LINES), self.datasets.train(), strict=False)]
        sentences = sum(len(split_sentences(line)) for line in lines) / max(1, len(lines))
        about: dict[str, Plain] = {
            "validation": values,
            "calibration": calibration.model_dump(mode="json"),
            "sentences_per_line": round(sentences, 4),
            "reason": reason,
        }
        self._write_bundle(tensors, about)
        atomic_write(self.folder / FINISHED, json.dumps({"reason": reason}).encode())

    def _best_weights(self) -> tuple[dict[str, Tensor], dict[str, Plain]]:
        """The best checkpoint, or the mean of the last ones where asked for and at least as good."""
        best = checkpoints.best(self.folder) or checkpoints.last(self.folder)
        assert best is not None, "a run that ended has a checkpoint"
        candidates = [checkpoints.load_weights(best)]
        if self.recipe.training.average is not None:
            files = [path / checkpoints.WEIGHTS for path in checkpoints.every(self.folder)]
            candidates.append(average(files[-self.recipe.training.average :]))
        scored = []
        for tensors in candidates:
            weights.restore(self.network, tensors, str(self.folder))
            self.network.eval()
            with torch.no_grad():
                scored.append(dict(self.validate(self.network)))
        metric, chosen = self.recipe.training.metric, 0
        for index in range(1, len(scored)):
            if self.recipe.training.is_better(scored[index][metric], scored[chosen][metric]):
                chosen = index
        weights.restore(self.network, candidates[chosen], str(self.folder))
        if len(scored) > 1:
            said = ", ".join(f"{scored[i][metric]:.4f}" for i in range(len(scored)))
            self.wishes.tell(f"best and averaged {metric}: {said}; kept the {'average' if chosen else 'best'}")
        return candidates[chosen], {name: float(value) for name, value in scored[chosen].items()}

    def _calibrated(self) -> Calibration:
        """How to turn log-probabilities of the recipe's own search into honest confidences, fitted on dev."""
        sources = [example.source for example in self.dev]
        predictions = list(self._model().predict(sources, Options(split=False, on_long="skip")))
        metric, threshold = self.metrics[0], self.recipe.evaluation.right_at
        right = correct_outputs(metric, [p.text for p in predictions], [e.references for e in self.dev], threshold)
        told = metric.name + (" perfect" if threshold is None else f" at {threshold:g} or better")
        return Calibration.fit(
            [p.best.log_prob for p in predictions], [len(p.tokens) for p in predictions], right, criterion=told
        )

    def _write_bundle(self, tensors: Mapping[str, Tensor], about: Mapping[str, Plain]) -> None:
        languages = self.recipe.languages.model_dump(mode="json")
        data: dict[str, Plain] = {Path(path).name: mark for path, mark in fingerprints(self.recipe.data).items()}
        bundle.save(
            self.folder / "bundle",
            recipe=render_yaml(self.recipe),
            tensors=tensors,
            extras=lambda folder: save_codecs(self.recipe, self.source, self.target, folder),
            about={
                "name": self.folder.name,
                "languages": languages,
                "parameters": parameters(self.network),
                "data": data,
                "machine": runtime.describe(),
                **about,
            },
        )


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
