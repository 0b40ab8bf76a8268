"""`seqloom.train("recipe.yaml")`: from a recipe to a run folder with the best bundle in it.

A run folder holds `recipe.yaml` (effective), `data.json` (fingerprints), `pairs.json` (what became of the lines),
`codec/`, `cache/` (encoded pairs), `metrics.jsonl`, `checkpoints/` and `bundle/`. The same call resumes; a finished run
is returned as it is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from seqloom import bundle, runtime, weights
from seqloom.api.datasets import check_unchanged, portable, recorded, write_record
from seqloom.api.evaluate import calibrated
from seqloom.api.folder import (
    Sitting,
    check_folder,
    check_readable,
    finished_reason,
    is_finished,
    is_trained,
    located,
    sitting,
)
from seqloom.api.learning import Given, Tell
from seqloom.api.load import find_bundle, load, members, save_codecs
from seqloom.api.model import Model
from seqloom.api.prepare import Prepared, check_model
from seqloom.api.ranks import agreed, answered, follow, invite, said_of
from seqloom.api.staging import (
    DATA,
    FINISHED,
    METRICS,
    START,
    adopt,
    drop_old_copies,
    new_folder,
    recover,
    undone_on_failure,
)
from seqloom.api.testset import metrics_of
from seqloom.config import Plain, render_yaml
from seqloom.data.readers import Example
from seqloom.data.sentences import split_sentences
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write
from seqloom.metrics.calibration import Calibration
from seqloom.metrics.perplexity import perplexity
from seqloom.nn.fusion import has_fusible
from seqloom.ranks.group import ALONE, Group
from seqloom.ranks.several import joined
from seqloom.ranks.share import WHOLE, Share
from seqloom.recipe import Recipe
from seqloom.shapes import Tensor
from seqloom.training import checkpoints
from seqloom.training.averaging import average
from seqloom.training.events import Checkpoint, Event, Finished, Sample
from seqloom.training.gradients import TooLargeError
from seqloom.training.lock import RunLock
from seqloom.training.loop import fit
from seqloom.training.observers import CheckpointKeeper, JsonLines, Observer, TensorBoard
from seqloom.training.phases import phase
from seqloom.training.state import Snapshot
from seqloom.wiring import parameters

STOPPED = ("preempted", "interrupted")
SAMPLED_LINES = 5_000  # of the training sources, to learn whether lines are sentences


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
    replace: bool = False  # discard what the run folder holds, once the new run is ready to begin
    codec: Path | None = None  # a folder of codecs to take over
    tokens_of: Path | None = None  # a run whose target tokens a language model takes over


def train(
    recipe: str | Path | Recipe,
    run: str | Path | None = None,
    settings: Sequence[str] = (),
    wishes: Wishes | None = None,
) -> Run:
    """Train a recipe in a run folder (default `runs/<recipe>`), or go on where it stopped."""
    wishes = wishes or Wishes()
    with joined() as ranks:
        wanted, folder = agreed(ranks, lambda: located(recipe, run, settings))
        if ranks.leads:
            done = _lead(wanted, folder, wishes, ranks)
            ranks.tell("done", "")
            return done
        called = follow(ranks)
        if called.reason is not None:
            return Run(called.folder, called.reason)
        done = _Training(called.sitting, called.folder, Wishes(stop=wishes.stop), ranks).run()
        if done.reason in STOPPED:  # a launcher ends all when one has ended so, and rank 0 may still be saving
            ranks.told("done")
        return done


def _lead(wanted: Recipe, folder: Path, wishes: Wishes, ranks: Group) -> Run:
    """Prepare the run folder, call the others where there are any, and train."""
    check_folder(folder)
    if wishes.replace or not is_trained(folder):
        check_readable(wanted.data)
        check_model(wanted)
        teachers = wanted.task.teachers.runs if wanted.task.teachers else ()
        for other in [*members(teachers), *filter(None, [wishes.start, wishes.tokens_of])]:
            _check_other(other, folder, wishes.replace)
        wishes.tell("reading the data")
    with RunLock(folder):
        recover(folder)
        with undone_on_failure(folder):
            now = sitting(wanted, folder, wishes.start, wishes.replace)
            if not now.begins:
                check_unchanged(now.recipe.data, folder / DATA, wishes.allow_data_change)
                if is_finished(folder):
                    wishes.tell(f"{folder} is finished already")
                    invite(ranks, folder, finished_reason(folder))
                    return Run(folder, finished_reason(folder))
                _mend(folder, wishes.tell)
            training = _Training(now, folder, wishes, ranks)
        if now.begins:
            adopt(folder)
            drop_old_copies(folder, now.recipe.data)
        if ranks.size > 1:
            wishes.tell(said_of(ranks, now.recipe))
        invite(ranks, folder)
        return training.run()


def _mend(folder: Path, tell: Tell) -> None:
    """Go on from the checkpoints there are, where `last` or `best` was lost; E_BUNDLE where there is none."""
    if is_trained(folder) and not checkpoints.every(folder):
        fix = "put checkpoints/ back, choose another --run, or --replace to begin anew"
        raise SeqloomError("E_BUNDLE", "the run has a bundle, but no checkpoint", where=str(folder), fix=fix)
    for line in checkpoints.mend(folder):
        tell(line)


def _check_other(other: Path, folder: Path, replaced: bool) -> None:
    """A run to begin or to learn from can be opened, and is not the one about to be dropped: before it is."""
    found = find_bundle(other)
    if replaced and found.resolve().is_relative_to(folder.resolve()):
        what = "--replace would drop the run to begin or to learn from"
        raise SeqloomError("E_USAGE", what, where=str(other), fix="choose another --run")
    bundle.open_bundle(found)


class _Training:
    """One sitting of one run: fit, listen, keep."""

    def __init__(self, now: Sitting, folder: Path, wishes: Wishes, ranks: Group = ALONE) -> None:
        self.folder, self.wishes, self.ranks = folder, wishes, ranks
        self.metrics = metrics_of(None, now.recipe)
        for line in now.told:
            wishes.tell(line)
        place = new_folder(folder) if now.begins else folder
        if now.begins and now.start is not None:
            atomic_write(place / START, json.dumps({"from": str(now.start)}).encode())
        if now.begins:
            write_record(now.recipe.data, place / DATA)
        with phase("preparing the data"):
            given = Given(now.start, wishes.codec, wishes.tokens_of)
            self.parts = Prepared(now.recipe, place, wishes.tell, given, ranks)
        self.parts.folder = folder
        self.recipe = self.parts.recipe  # with every choice made that needs the data and the model

    def run(self) -> Run:
        if self.ranks.leads:
            checkpoints.prune(self.folder, self._kept)  # whoever was killed at it left old ones, or parts of them
        last = checkpoints.last(self.folder)
        try:
            self.ranks.connect(self.parts.device, self.recipe.runtime.timeout)
            reason = self._listen(self._events(None if last is None else checkpoints.load(last)))
            self.ranks.disconnect()
            if reason not in STOPPED and self.ranks.leads:
                with phase("finishing"):
                    self._finish(reason)
        except TooLargeError as error:
            where = error.where if error.example is None else self.parts.place_of(error.example)
            raise SeqloomError(error.code, error.what, where=where, fix=error.fix) from None
        except SeqloomError as error:
            if error.code != "E_DIVERGED":
                raise
            raise SeqloomError(error.code, error.what, where=error.where, fix=self._way_out(error.fix)) from None
        return Run(self.folder, reason)

    @property
    def _kept(self) -> int:
        """How many of the newest checkpoints stay."""
        return max(2, self.recipe.training.average or 0)

    def _ways(self) -> tuple[bool, bool]:
        """Do steps become CUDA graphs, and are layers compiled? What is chosen, and what was asked in vain, is said."""
        chosen, network = self.recipe.runtime, self.parts.network
        asked = chosen.compile == "fused"
        if (slower := self.parts.task.slower(network)) is not None:
            self.wishes.tell(slower)
        if chosen.precision == "bf16" and self.parts.device.type == "cpu":
            fast = runtime.has_bf16(self.parts.device)
            slow = "caution: products in bf16, and this processor has no instructions for them: float32 is faster"
            self.wishes.tell("products in bf16, which this processor is fast at" if fast else slow)
        if self.parts.device.type != "cuda" or chosen.compile == "never":
            if asked:
                self.wishes.tell("training steps: one by one, runtime.compile: fused is for a GPU")
            return False, False
        obstacle = self.parts.task.obstacle(network)
        if chosen.precision == "fp16":
            obstacle = "the scale of fp16 changes"
        fuses = asked and has_fusible(network)
        said = ["training steps: " + (f"one by one, {obstacle}" if obstacle else "CUDA graphs")]
        if asked:
            said.append("layers compiled" if fuses else "no layers that can be compiled")
        self.wishes.tell("; ".join(said))
        return obstacle is None, fuses

    def _events(self, snapshot: Snapshot | None) -> Iterator[Event]:
        record, fuse = self._ways()
        return fit(
            self.parts.task,
            self.parts.network,
            self.parts.batches(self._share()),
            self.recipe.training,
            validate=lambda network: self.validate(network, self.ranks),
            seed=self.recipe.runtime.seed,
            precision=self.recipe.runtime.precision,
            record=record,
            fuse=fuse,
            resume=snapshot,
            stop=self.wishes.stop,
            samples=self.samples,
            tell=self.wishes.tell,
            ranks=self.ranks,
        )

    def _share(self) -> Share:
        """What this process computes of every step."""
        if not self.parts.task.splits:
            return WHOLE  # the task shares out its rows itself
        rows_only = self.recipe.batching.window is not None
        return self.ranks.share(self.recipe.training.accumulate, rows_only=rows_only)

    def _way_out(self, remedy: str) -> str:
        """What to do about a run that diverged. With the recipe as it is, it would come to the same point again."""
        place = shlex.quote(str(self.folder))
        if not is_trained(self.folder):
            return f"nothing was saved yet; train again with {remedy}"
        if (self.folder / "bundle").exists():
            return f"begin another run from the best weights (--from {place} --run NEW), with {remedy}"
        return f"begin anew (--replace), with {remedy}"

    def _listen(self, events: Iterator[Event]) -> str:
        with ExitStack() as stack:
            observers: list[Observer] = []
            if self.ranks.leads:
                log = stack.enter_context(JsonLines(self.folder / METRICS))
                board = [TensorBoard(self.folder / "board", self.wishes.tell)] if TensorBoard.available() else []
                observers = [log, *board, CheckpointKeeper(self.folder, self._kept), *self.wishes.observers]
            reason = "interrupted"
            for event in events:
                with phase("saving" if isinstance(event, Checkpoint) else "logging"):
                    for observer in observers:
                        observer(event)
                    if isinstance(event, Checkpoint) and event.best and self.ranks.leads:
                        self._write_bundle(event.snapshot().weights(), {})
                if isinstance(event, Finished):
                    reason = event.reason
        return reason

    def validate(self, network: nn.Module, ranks: Group = ALONE) -> Mapping[str, float]:
        """Loss on all dev pairs; the recipe's metrics on the first of them, decoded greedily. All of it in float32.

        Of several processes each computes some of the batches and some of the outputs.
        """
        total, count = 0.0, 0.0
        for batch in self.parts.dev_batches(ranks.share_of_batches()):
            loss = self.parts.task.loss(network, batch.to(self.parts.device), 0)
            total, count = total + float(loss.nll), count + int(loss.count)
        total, count = ranks.sums([total, count])
        values = {"nll": total / count, "perplexity": perplexity(total, count)}
        chosen = self.parts.dev[: self.recipe.evaluation.validate_examples]
        if chosen and not self.parts.codecs.continues:  # there is more than one way to go on with a text
            outputs = self._outputs(chosen, lambda all_of_them: answered(ranks, self.parts, all_of_them))
            references = [example.references for example in chosen]
            for word, metric in self.metrics.items():
                values[word] = metric.score(outputs, references)
        return values

    def samples(self, network: nn.Module) -> list[Sample]:
        chosen = self.parts.dev[: self.recipe.evaluation.show]
        if self.parts.codecs.continues:
            chosen = [_begun(example) for example in chosen]
        outputs = self._outputs(chosen, self.parts.shown)
        written = [self.parts.codecs.target.rewritten(example.target) for example in chosen]
        return [Sample(one.shown, *texts) for one, *texts in zip(chosen, outputs, written, strict=True)]

    def _outputs(self, examples: Sequence[Example], answers: Callable[[Sequence[Example]], list[str]]) -> list[str]:
        try:
            return answers(examples)
        except SeqloomError as error:
            if error.code != "E_DIVERGED":
                raise
            what = f"at a validation {error.what}"
            raise SeqloomError("E_DIVERGED", what, where=str(self.folder), fix="a lower lr, or clip: 1.0") from None

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, reason: str) -> None:
        """Take the weights to keep, calibrate on dev, write the bundle, and only then call the run finished."""
        tensors, values = self._kept_weights()
        answers = self.recipe.model.answers
        calibration = calibrated(self.parts.model(), self.parts.dev) if answers else Calibration()
        lines = [example.source for _, example in zip(range(SAMPLED_LINES), self.parts.datasets.train(), strict=False)]
        sentences = sum(len(split_sentences(line)) for line in lines) / max(1, len(lines))
        about: dict[str, Plain] = {
            "validation": values,
            "calibration": calibration.model_dump(mode="json"),
            "sentences_per_line": round(sentences, 4),
            "reason": reason,
        }
        self._write_bundle(tensors, about)
        atomic_write(self.folder / FINISHED, json.dumps({"reason": reason}).encode())

    def _kept_weights(self) -> tuple[dict[str, Tensor], dict[str, Plain]]:
        """The checkpoint to keep, or the mean of the last ones where asked for and at least as good."""
        keep = self.recipe.training.keep
        best = checkpoints.best(self.folder) if keep == "best" else None
        kept = best or checkpoints.last(self.folder)
        assert kept is not None, "a run that ended has a checkpoint"
        candidates = [checkpoints.load_weights(kept)]
        if self.recipe.training.average is not None:
            files = [path / checkpoints.WEIGHTS for path in checkpoints.every(self.folder)]
            candidates.append(average(files[-self.recipe.training.average :]))
        scored = []
        for tensors in candidates:
            weights.restore(self.parts.network, tensors, str(self.folder))
            self.parts.network.eval()
            with torch.no_grad():
                scored.append(dict(self.validate(self.parts.network)))
        metric, chosen = self.recipe.training.metric, 0
        for index in range(1, len(scored)):
            if self.recipe.training.is_better(scored[index][metric], scored[chosen][metric]):
                chosen = index
        weights.restore(self.parts.network, candidates[chosen], str(self.folder))
        if len(scored) > 1:
            said = ", ".join(f"{scored[i][metric]:.4f}" for i in range(len(scored)))
            self.wishes.tell(f"{keep} and averaged {metric}: {said}; kept the {'average' if chosen else keep}")
        return candidates[chosen], {name: float(value) for name, value in scored[chosen].items()}

    def _write_bundle(self, tensors: Mapping[str, Tensor], about: Mapping[str, Plain]) -> None:
        languages = self.recipe.languages.model_dump(mode="json")
        data: dict[str, Plain] = {Path(path).name: mark for path, mark in recorded(self.folder / DATA).items()}
        bundle.save(
            self.folder / "bundle",
            recipe=render_yaml(portable(self.recipe)),
            tensors=tensors,
            extras=lambda folder: save_codecs(self.recipe, self.parts.codecs, folder),
            about={
                "name": self.folder.absolute().name,
                "languages": languages,
                "parameters": parameters(self.parts.network),
                "data": data,
                "machine": runtime.describe(),
                **about,
            },
        )


def _begun(example: Example) -> Example:
    """A text without a source as one to go on with: its first half, which the rest follows."""
    words = example.target.split(" ")
    half = len(words) // 2
    return example if example.source else replace(example, source=" ".join(words[:half]) + " " * bool(half))
