"""Sequence to sequence: cross-entropy with teacher forcing, and the remedies for exposure bias.

loss = sum over t of -log P(y_t given y_<t, x). What the decoder reads as y_<t is the `history`: gold, noisy, or its
own predictions. What it must say is the target: gold, or an edited draw of it. R-Drop, teachers, minimum risk and
losses on the attention, which change the loss itself, live in files of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator

from seqloom import config
from seqloom.batch import Batch, Tokens, Window
from seqloom.config import Kind
from seqloom.data.batching import collate_pairs
from seqloom.data.corpus import Pair
from seqloom.models.contracts import State
from seqloom.models.generator import Generator
from seqloom.nn.ctc import CTC, ctc_nll
from seqloom.nn.tape import Tape
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES, Beam
from seqloom.shapes import Features, Float, Int, Tensor
from seqloom.specials import BOS, EOS, UNK
from seqloom.tasks.alignment import AttentionLoss
from seqloom.tasks.base import Loss, Task
from seqloom.tasks.carried import Carried
from seqloom.tasks.noise import Noise, edited, noisy, spoilt, words_with
from seqloom.tasks.passes import Pass
from seqloom.tasks.rdrop import divergence, halves
from seqloom.tasks.risk import Decode, ExpectedRisk, Risk
from seqloom.tasks.sampling import SAMPLING, Constant, Schedule
from seqloom.tasks.teaching import Teachers, taught

JUDGED = 1  # seed of the noise in validation


class SearchSettings(config.Settings):
    """How outputs are looked for, unless a command says otherwise."""

    strategy: Annotated[config.Settings, Kind(STRATEGIES)] = Beam.Settings()
    limits: Limits = Limits()
    ctc: float = Field(0.0, ge=0.0, le=100.0)  # weight of what the encoder says by itself


class Transduce(Task[Generator, Pair, list[Hypothesis]]):
    """Encoder-decoder training and prediction."""

    class Settings(config.Settings):
        kind: Literal["transduce"] = "transduce"
        label_smoothing: float = Field(0.0, ge=0.0, lt=1.0)
        sampling: Annotated[config.Settings, Kind(SAMPLING)] = Constant.Settings()
        sampling_pick: Literal["argmax", "sample"] = "argmax"  # how the decoder's own prediction is drawn
        history: Noise = Noise()  # on what the decoder reads; `drop` is word dropout
        edit_temperature: float = Field(0.0, ge=0.0)  # > 0: learn sampled edited targets
        source_noise: Noise = Noise()
        restore: bool = False  # ask for those tokens alone that `source_noise` struck (masked language modelling)
        next_word: bool = False  # ask every token for the one behind it (language modelling of an encoder)
        r_drop: float = Field(0.0, ge=0.0)  # alpha: how much two passes with other dropout must agree
        teachers: Teachers | None = None  # trained runs whose probabilities are learned as well (distillation)
        risk: Risk | None = None  # minimise the expected cost of a metric: to fine-tune a trained run with
        guided_alignment: float = Field(0.0, ge=0.0)  # weight of the loss that pulls attention to the data's alignments
        coverage_loss: float = Field(0.0, ge=0.0)  # weight of the loss on attending again to what was attended to
        doubly_stochastic: float = Field(0.0, ge=0.0)  # weight of the loss on positions not looked at about once in all
        ctc: float = Field(0.0, ge=0.0, lt=1.0)  # share of the loss that is of what the encoder says by itself
        attention_layer: int | None = Field(None, ge=1)  # whose weights these see; null: the last that attends

        @model_validator(mode="after")
        def _edits_can_be_drawn(self) -> Transduce.Settings:
            if 0 < self.edit_temperature < 1e-3:  # float32 would divide 0 by 0
                raise ValueError(f"edit_temperature: expected 0 or at least 0.001 (got {self.edit_temperature:g})")
            return self

        @model_validator(mode="after")
        def _something_to_restore(self) -> Transduce.Settings:
            noise = self.source_noise
            if self.restore and not (noise.mask or noise.replace or noise.keep):
                raise ValueError("restore: nothing is spoilt; set source_noise.mask, such as 0.15")
            if self.restore and noise.moves:
                raise ValueError("restore: source_noise.drop, swap and span move tokens; use mask, replace and keep")
            if self.restore and noise.replace + noise.mask + noise.keep > 1:
                raise ValueError(
                    "source_noise: where tokens are restored, replace, mask and keep are at most 1 together"
                )
            if self.restore and self.next_word:
                raise ValueError("next_word: restore asks for tokens in their own places; leave one of them out")
            if noise.keep and not self.restore:
                raise ValueError("source_noise.keep: it changes nothing unless restore asks for what was kept")
            if self.history.whole_words or self.history.span or self.history.keep:
                raise ValueError("history: whole_words, span and keep are for source_noise")
            return self

        @model_validator(mode="after")
        def _something_to_agree_on(self) -> Transduce.Settings:
            if self.r_drop and self.risk is not None and not self.risk.nll:
                raise ValueError("r_drop: it is a part of the ordinary loss, which risk.nll 0 leaves out")
            if self.teachers is not None and self.risk is not None and not self.risk.nll:
                raise ValueError("teachers: they speak in the ordinary loss, which risk.nll 0 leaves out")
            return self

        @model_validator(mode="after")
        def _something_to_look_at(self) -> Transduce.Settings:
            if self.attention_layer is not None and not self.watches:
                raise ValueError("attention_layer: no guided_alignment, coverage_loss or doubly_stochastic asks for it")
            if self.guided_alignment and (self.source_noise.drop or self.source_noise.swap):
                raise ValueError("guided_alignment: source_noise.drop and swap move the tokens that alignments name")
            if self.watches and self.risk is not None and not self.risk.nll:
                raise ValueError("risk.nll: 0 leaves out the loss that losses on the attention are added to")
            return self

        @property
        def about_history(self) -> str | None:
            """The first key that is set of those that change what a decoder reads of its own output, if any is."""
            default = Transduce.Settings()
            keys = ("sampling", "sampling_pick", "history")
            return next((key for key in keys if getattr(self, key) != getattr(default, key)), None)

        @property
        def about_whole_targets(self) -> str | None:
            """The first key that is set of those which need a target from its beginning to its end, if any is."""
            default = Transduce.Settings()
            keys = ("sampling", "edit_temperature", "r_drop", "teachers", "risk")
            return next((key for key in keys if getattr(self, key) != getattr(default, key)), None)

        @property
        def watches(self) -> bool:
            """Is anything asked of the attention?"""
            return self.guided_alignment > 0 or self.coverage_loss > 0 or self.doubly_stochastic > 0

    def __init__(
        self,
        settings: Settings,
        *,
        vocabularies: tuple[int, int],
        searching: SearchSettings,
        decode: Decode | None = None,
        teachers: Sequence[Generator] = (),
        carried: Carried | None = None,
        by_words: bool = False,
    ) -> None:
        """`decode` turns target ids into text: only metrics need it, that is `risk`. Only training needs `teachers`,
        and `carried` where texts are read in windows. `by_words`: what is restored are words, not tokens."""
        self.settings = settings
        self.source_vocabulary, self.target_vocabulary = vocabularies
        self.sampling: Schedule = SAMPLING.build(settings.sampling)
        self.searching = searching
        self.teachers, self.carried, self.by_words = tuple(teachers), carried, by_words
        self.risk: ExpectedRisk | None = None
        if settings.risk is not None:
            assert decode is not None, "a metric judges text"
            self.risk = ExpectedRisk(settings.risk, decode, searching.limits)
        self.looking = AttentionLoss(
            settings.guided_alignment, settings.coverage_loss, settings.doubly_stochastic, settings.attention_layer
        )

    def collate(self, examples: Sequence[Pair]) -> Batch:
        return collate_pairs(examples)

    def loss(self, model: Generator, batch: Batch, step: int) -> Loss:
        """Plain and unweighted where the model is not training: what validation reports."""
        if not model.training:
            learned, target = _learned(model, self._judged(batch))
            return summed(*model.losses(learned), target)
        batch = self._noisy_source(batch)
        if self.settings.next_word:
            batch = _moved_up(batch)
        if self.risk is None:
            return self._likelihood(model, batch, step)
        return self._risk(self.risk, model, batch, step)

    def obstacle(self, model: Generator) -> str | None:
        settings, sampling = self.settings, self.settings.sampling
        obstacles = {
            "task.risk searches": settings.risk is not None,
            "windows of a text go on where others ended": self.carried is not None,
            "task.source_noise and task.history are drawn on the host": not (
                settings.source_noise.silent and settings.history.silent
            ),
            "task.edit_temperature is drawn on the host": settings.edit_temperature > 0,
            "task.sampling looks at each prediction": sampling != Constant.Settings(),
            "losses on the attention look at it": settings.watches,
            "task.ctc asks for lengths": settings.ctc > 0,
            "what may be copied differs from batch to batch": model.head.copies,
            "layers are computed twice (checkpointing)": any(
                getattr(module, "checkpointing", False) for module in model.modules()
            ),
        }
        return next((words for words, there in obstacles.items() if there), None)

    def slower(self, model: Generator) -> str | None:
        reason = model.decoder.one_by_one
        return None if reason is None else f"attention inside the recurrence: step by step, because of {reason}"

    def _likelihood(self, model: Generator, batch: Batch, step: int) -> Loss:
        """Cross-entropy, averaged over two passes that must agree where R-Drop is on."""
        settings, (batch, target) = self.settings, _learned(model, batch)
        if settings.edit_temperature:
            target = edited(target, settings.edit_temperature, self.target_vocabulary)
            batch = replace(batch, target=target)
        made, losses = self._pass(model, batch.twice() if settings.r_drop else batch, step)
        if not settings.r_drop:
            passes, (minimised, nll) = [made], losses
        else:  # both passes at once: the batch stands there twice, and dropout differs from row to row
            passes = [*halves(model.head, made)]
            minimised, nll = (values.view(2, -1).mean(0) for values in losses)
        if settings.teachers is not None:
            assert self.teachers, "a task with teachers is given them where it trains"
            learned = taught(model.head, passes, self.teachers, batch, self.target_vocabulary)
            minimised = torch.lerp(minimised, learned, settings.teachers.weight)
        if settings.r_drop:
            apart = divergence(model.head, passes, target, self.target_vocabulary)
            minimised = minimised + settings.r_drop / 4 * apart
        return summed(minimised, nll, target, batch.weights)

    def _risk(self, risk: ExpectedRisk, model: Generator, batch: Batch, step: int) -> Loss:
        """Each source's expected cost counts as often as its target has tokens, so that it adds to the token loss."""
        assert batch.target is not None
        costs, nll = risk(model, batch)  # B
        weights = torch.ones_like(nll) if batch.weights is None else batch.weights.to(nll.dtype)
        tokens = batch.target.lengths * weights  # B
        total = risk.settings.weight * (costs * tokens).sum()
        if risk.settings.nll:
            total = total + risk.settings.nll * self._likelihood(model, batch, step).total
        return Loss(total, tokens.sum(), (nll.detach() * weights).sum())

    def _noisy_source(self, batch: Batch) -> Batch:
        noise = self.settings.source_noise
        if noise.silent:
            return batch
        source = batch.sources["source"]  # tags beside it stay as they are
        assert isinstance(source, Tokens), "source noise is for tokens"
        if not self.settings.restore:
            spoilt_source = noisy(source, noise, self.source_vocabulary, remove=True)
            return replace(batch, sources={**batch.sources, "source": spoilt_source})
        read, struck = spoilt(source, noise, self.source_vocabulary)
        assert batch.target is not None
        if self.by_words:
            struck = words_with(source, struck, batch.target.ids.shape[1])
        known = batch.target.ids != UNK  # what the vocabulary lacks is read, and not asked for
        asked = replace(batch.target, mask=batch.target.mask & struck & known)  # one for each in its place
        return replace(batch, sources={**batch.sources, "source": read}, target=asked)

    def _judged(self, batch: Batch) -> Batch:
        """What validation asks: the plain batch; where tokens are to be restored, with the same noise every time."""
        if self.settings.next_word:
            return _moved_up(batch)
        if not self.settings.restore:
            return batch
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(JUDGED)
            return self._noisy_source(batch)

    def _pass(
        self, model: Generator, batch: Batch, step: int
    ) -> tuple[Pass, tuple[Float[Tensor, "M"], Float[Tensor, "M"]]]:
        """One pass of the decoder, and (minimised, nll) of every real target token."""
        assert batch.target is not None
        settings = self.settings
        heard = [*([self.looking.tap(model)] if settings.watches else ()), *([CTC] if settings.ctc else ())]
        if not heard:
            made = self._features(model, batch, step)
            return made, model.head.losses(*made, batch.target, settings.label_smoothing)
        with Tape(*heard, keep_gradients=True) as tape:
            made = self._features(model, batch, step)
        minimised, nll = model.head.losses(*made, batch.target, settings.label_smoothing)
        if settings.watches:
            minimised = minimised + self.looking.values(tape, model, batch)
        if settings.ctc:
            minimised = with_ctc(minimised, tape.steps(CTC)[0], batch.target, settings.ctc)
        return made, (minimised, nll)

    def _features(self, model: Generator, batch: Batch, step: int) -> Pass:
        """One pass of the decoder over its history: gold, noisy, or in part its own predictions."""
        assert batch.target is not None
        if batch.window is not None:
            return self._read_on(model, batch.window, step)
        history = noisy(batch.target, self.settings.history, self.target_vocabulary, remove=False)
        gold = self.sampling.gold(step)
        return model.forced(batch, history) if gold == 1.0 else self._sampled(model, batch, history, gold)

    def _read_on(self, model: Generator, window: Window, step: int) -> Pass:
        """One pass over a window of a text, from the state that the window before left."""
        assert self.carried is not None, "windows leave something to each other"
        read = Tokens(window.read, torch.ones_like(window.read, dtype=torch.bool))
        heard = noisy(read, self.settings.history, self.target_vocabulary, remove=False)
        features, state = model.decoder(heard.ids, self.carried.before(window, model.decoder, step))
        self.carried.after(window, model.decoder, state)
        return features, state

    def _sampled(self, model: Generator, batch: Batch, history: Tokens, gold: float) -> tuple[Features, State]:
        """Step by step: each input is gold with probability `gold`, else what the model just predicted."""
        state = model.start(batch.sources, 1)
        last = torch.full_like(history.ids[:, 0], BOS)
        coins = torch.rand(history.ids.shape).to(history.ids.device) < gold
        features = []
        for t in range(history.ids.shape[1]):
            feature, state = model.read(last[:, None], state)
            features.append(feature)
            # Not under no_grad: autocast would keep a cast of the weights that knows no gradient, for the loss as well.
            own = self._pick(model.head.log_probs(feature.detach(), state)[:, 0].detach())
            last = torch.where(coins[:, t], history.ids[:, t], own)
        return torch.cat(features, dim=1), state

    def _pick(self, log_probs: Float[Tensor, "N W"]) -> Int[Tensor, "N"]:
        if self.settings.sampling_pick == "argmax":
            return log_probs.argmax(-1)
        return torch.multinomial(log_probs.exp(), 1)[:, 0]

    def predict(self, model: Generator, batch: Batch) -> list[list[Hypothesis]]:
        return search(model, batch.sources, self.searching.strategy, limits=self.searching.limits)


def _moved_up(batch: Batch) -> Batch:
    """Every place is asked for the token behind it: not for the end, nor for what the vocabulary lacks."""
    target = batch.target
    assert target is not None
    ids, mask = (torch.roll(values, -1, dims=1) for values in (target.ids, target.mask))
    mask[:, -1] = False
    return replace(batch, target=replace(target, ids=ids, mask=mask & (ids != EOS) & (ids != UNK)))


def _learned(model: Generator, batch: Batch) -> tuple[Batch, Tokens]:
    """The batch and its target, without the ends where these are certain: there is nothing to learn of them."""
    assert batch.target is not None
    target = batch.target.without(EOS) if model.decoder.sure_of_end else batch.target
    return replace(batch, target=target), target


def with_ctc(
    minimised: Float[Tensor, "M"], log_probs: Float[Tensor, "B S V"], target: Tokens, share: float
) -> Float[Tensor, "M"]:
    """(1 - share) of every token's loss, and share of its sequence's by CTC, evenly over its tokens (Kim et al. 2017).

    A target that is too long for its source to say it so is learned as without CTC.
    """
    values, fits = ctc_nll(log_probs, target)  # B
    each = values / target.mask.sum(1).clamp(min=1)
    weight = target.real((share * fits)[:, None].expand(target.mask.shape)).to(minimised.dtype)  # M
    return torch.lerp(minimised, target.real(each[:, None].expand(target.mask.shape)).to(minimised.dtype), weight)


def summed(
    minimised: Float[Tensor, "M"], nll: Float[Tensor, "M"], target: Tokens, weights: Float[Tensor, "B"] | None = None
) -> Loss:
    """Sums over the M real target tokens, each token weighted like its example."""
    minimised, nll = target.counted(minimised), target.counted(nll.detach())
    if weights is None:
        return Loss(minimised.sum(), target.mask.sum(), nll.sum())
    each = target.counted(target.real(weights[:, None].expand(target.mask.shape)).to(minimised.dtype))  # M
    return Loss((each * minimised).sum(), each.sum(), (each * nll).sum())
