"""A loaded model: text in, text out, lists in, lists out.

A text is a source, or a mapping of the source and every extra that the model reads. `Model` joins codecs, network and
search. It tokenises, splits paragraphs, batches, searches, restores order and says how confident it is; it writes no
file and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

import numpy as np
import torch

from seqloom import runtime
from seqloom.api.alternatives import Alternative, alternatives
from seqloom.api.asking import Asking
from seqloom.api.attended import covered, known_pieces, no_attention
from seqloom.api.options import Options
from seqloom.api.predictions import Output, Prediction, answered, passed_over
from seqloom.api.reading import CHUNK_LINES, Piece, Place, Reader
from seqloom.api.risk import least_risk
from seqloom.api.stream import pieces_of_text, refuse_streaming
from seqloom.api.workers import Staff, ahead
from seqloom.batch import Batch, Source, Tokens
from seqloom.config import kind_of, validated
from seqloom.data.batching import Plan, collate_pairs, collate_sources, in_order
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Encoded
from seqloom.data.corpus import Lengths
from seqloom.data.examples import Inputs
from seqloom.data.lexicon import FILE as LEXICON
from seqloom.data.lexicon import Lexicon
from seqloom.errors import SeqloomError
from seqloom.interpreter import without_collector
from seqloom.metrics.calibration import Calibration
from seqloom.metrics.perplexity import perplexity
from seqloom.models.contracts import Scorer
from seqloom.models.ctc import CtcPrefix
from seqloom.models.generator import Generator, shifted
from seqloom.models.mixture import Mixture
from seqloom.models.model import EncoderDecoder
from seqloom.models.narrowed import Narrowed, can_be_narrowed
from seqloom.nn.tape import playing
from seqloom.recipe import Recipe
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Observer, searched
from seqloom.search.recordings import Graphs, Recordings
from seqloom.shapes import Nll
from seqloom.wiring import parameters

if TYPE_CHECKING:
    from seqloom.probe.edits import Edits
    from seqloom.probe.explain import Explanation

Several = list[str] | list[dict[str, str]] | tuple[Inputs, ...]
USUAL_ROWS = 8  # hypotheses per source that a batch has room for; with more of them it holds fewer sources


@dataclass(frozen=True)
class PairScore:
    """How probable a given target is: log P(target given source), in all and per token (the last is the end)."""

    source: str
    target: str
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    extras: Mapping[str, str] = field(default_factory=dict)

    @property
    def log_prob(self) -> float:
        return sum(self.token_scores)

    @property
    def perplexity(self) -> float:
        return perplexity(-self.log_prob, len(self.token_scores))


@dataclass
class Model:
    """`model("text")` gives a `Prediction`; `model(["a", "b"])` a list of them.

    A model with extras is asked `model({"source": "text", "tags": "V;PST"})`, or a list of such.
    """

    name: str
    recipe: Recipe
    codecs: Codecs
    network: Generator
    about: Mapping[str, object] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    scorer: Scorer | None = None  # what search steps instead of the network: an ensemble
    home: Path | None = None  # the bundle's folder: what was learned beside the model lies there, or around it
    advice: Scorer | None = None  # what is added when hypotheses are compared: a weighted language model
    workers: Staff[Sequence[Encoded], list[list[Hypothesis]]] | None = None  # processes that predict; None: this one
    heed: Callable[[], None] | None = None  # asked after every step of a search: what it raises ends the search
    _asked: list[tuple[Options, Asking]] = field(default_factory=list, init=False, repr=False)  # the last ones

    def __post_init__(self) -> None:
        home = torch.empty(0, device=self.device).device  # with its number: "cuda" is "cuda:0"
        if any(parameter.device != home for parameter in self.network.parameters()):
            self.network.to(home)  # not needlessly: recurrent layers then move their weights about
        self.network.eval()

    @property
    def source(self) -> TextCodec:
        """The source's codec, for whatever is about words; E_USAGE where the model reads something else than text."""
        return self.codecs.source.as_text()

    @property
    def target(self) -> TextCodec:
        return self.codecs.target

    @cached_property
    def advised(self) -> Scorer | None:
        """All that is added when hypotheses are compared: `advice`, and what the encoder says by itself (`search.ctc`).

        Of an ensemble it is the first member's encoder.
        """
        weight = self.recipe.search.ctc
        if not weight:
            return self.advice
        own, others = CtcPrefix(cast(EncoderDecoder, self.network)), [] if self.advice is None else [self.advice]
        return Mixture([own, *others], [weight, *[1.0] * len(others)], len(self.target.vocabulary))

    @overload
    def __call__(self, text: Inputs, **options: object) -> Prediction: ...
    @overload
    def __call__(self, text: Several, **options: object) -> list[Prediction]: ...
    def __call__(self, text: Inputs | Several, **options: object) -> Prediction | list[Prediction]:
        """Predict one text, or several; keywords are those of `Options` (beam=5, n_best=3, prefix="...")."""
        chosen = validated(Options, options, "options")
        if isinstance(text, (str, Mapping)):
            return next(self.predict([text], chosen))
        return list(self.predict(text, chosen))

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict(
        self,
        texts: Iterable[Inputs],
        options: Options | None = None,
        chunk: int = CHUNK_LINES,
        name: str = "",
        first: int = 1,
    ) -> Iterator[Prediction]:
        """One prediction per text, in order, however long the input is. Empty lines give empty answers.

        `chunk` lines are read before the first is answered; `name` is that of the input and `first` the number of its
        first line, for errors.
        """
        chosen = options or Options()
        self.asking(chosen)  # what cannot be met is said before anything is read
        yield from self.reader.predictions(
            texts, chosen, lambda pieces: self._answers(pieces, chosen), chunk, Place(name, first)
        )

    def refuse_long(self, texts: Iterable[Inputs], options: Options, name: str = "", first: int = 1) -> None:
        """Look for sources over the recipe's maximum that `options` do not provide for, before the first answer."""
        self.reader.refuse_long(texts, options, Place(name, first))

    @cached_property
    def reader(self) -> Reader:
        limits = self.recipe.data.limits
        return Reader(self.codecs, limits.max_source, limits.max_extra, self.about.get("sentences_per_line"))

    @without_collector()
    def _answers(self, texts: Sequence[Piece], options: Options) -> list[Prediction]:
        """Batched by length, answered, and put back in order."""
        encoded, faults = self.reader.encoded(texts)
        answers = [passed_over(text, extras, faults.get(place)) for place, (text, extras) in enumerate(texts)]
        places = list(encoded)
        lengths = np.array([encoded[i].length for i in places], dtype=np.int64)
        batches = [[places[row] for row in batch] for batch in self._batches(lengths, options)]
        every = self._all_found([[encoded[i] for i in batch] for batch in batches], options)
        for batch, found in zip(batches, every, strict=True):
            for i, hypotheses in zip(batch, found, strict=True):
                text, extras = texts[i]
                answers[i] = self.prediction(text, extras, encoded[i], hypotheses[: options.n_best], options)
        return answers

    def _batches(self, lengths: Lengths, options: Options) -> Plan:
        """Of like lengths, and where several work at them enough for all."""
        rows = options.rows(self.asking(options).strategy)
        tokens = max(1, options.batch_tokens * USUAL_ROWS // max(USUAL_ROWS, rows))
        if self.workers is not None:
            tokens = self.workers.budget(tokens, int((lengths + 1).sum()))
        return in_order(lengths, tokens, 1 if options.deterministic else None)

    def _all_found(
        self, batches: Sequence[Sequence[Encoded]], options: Options
    ) -> Iterable[Sequence[Sequence[Hypothesis]]]:
        find = partial(self._found, options=options)
        if len(batches) < 2:
            return map(find, batches)
        if self.workers is None:
            return map(find, batches) if self.device.type == "cpu" else ahead(find, batches)
        return self.workers.answers(find, batches, key=options)

    def _found(self, sources: Sequence[Encoded], options: Options) -> list[list[Hypothesis]]:
        """Hypotheses as the options judge them."""
        if options.risk is not None:
            return least_risk(self, sources, options)
        found = self.search(sources, options)
        return covered(self, sources, found, options.coverage_penalty) if options.coverage_penalty else found

    def search(
        self,
        sources: Sequence[Encoded],
        options: Options,
        prefixes: Tokens | None = None,
        observer: Observer | None = None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for encoded sources, as one batch; `prefixes` are one for each, instead of the options' own."""
        asking = self.asking(options)
        wishes = asking.wishes([self.codecs.begun(asking.prefix, encoded) for encoded in sources], self.advised)
        begun = wishes.prefixes if prefixes is None else prefixes
        wishes = replace(wishes, prefixes=begun)
        scorer = self.stepped(options, begun)
        with self.precision():
            if self.recordings is not None and observer is None and not playing():
                found = self.recordings.search(scorer, collate_sources(sources), asking.strategy, wishes, self.device)
                if found is not None:
                    return found
            return searched(scorer, self.sources(sources), asking.strategy, wishes, observer or self._heeding)

    @property
    def _heeding(self) -> Observer | None:
        heed = self.heed
        return None if heed is None else lambda step, frontier: heed()

    @cached_property
    def recordings(self) -> Recordings | None:
        """Where steps of a search are recorded: on a GPU."""
        return Recordings(Graphs(self.device)) if self.device.type == "cuda" else None

    def stepped(self, options: Options, prefixes: Tokens | None) -> Scorer:
        """What search steps: the network, or what stands in its place; with a shortlist, for this one search."""
        if options.shortlist is None:
            return self.scorer or self.network
        size = len(self.target.vocabulary)
        shortlists = partial(self.lexicon.allowed, count=options.shortlist, vocabulary=size)
        return Narrowed(self.network, shortlists, prefixes, list(chain(*self.asking(options).phrases)))

    @cached_property
    def lexicon(self) -> Lexicon:
        """Which target tokens source tokens lead to; E_BUNDLE where nobody has learned it yet."""
        home = self.home or Path()
        folder = next((place for place in (home, home.parent) if (place / LEXICON).is_file()), home.parent)
        return Lexicon.load(folder, (len(self.source.vocabulary), len(self.target.vocabulary)))

    def sources(self, encoded: Sequence[Encoded]) -> dict[str, Source]:
        """Encoded inputs as one batch on this model's device."""
        return {name: source.to(self.device) for name, source in collate_sources(encoded).items()}

    def precision(self) -> AbstractContextManager[object]:
        """The recipe's precision, where this device has it."""
        return runtime.autocast(self.device, self.recipe.runtime.precision)

    def asking(self, options: Options) -> Asking:
        """What the options mean for this model, worked out once; E_USAGE for what cannot be met."""
        for known, asking in self._asked:
            if known is options or known == options:
                return asking
        if (options.coverage_penalty or options.replace_unknown) and not self.recipe.model.attends:
            raise no_attention()
        if options.shortlist is not None:
            if self.scorer is not None or not can_be_narrowed(self.network):
                what = "shortlist: only one model with an output matrix of its own can leave a part of it out"
                raise SeqloomError("E_USAGE", what, fix="leave the shortlist out")
            kept = self.lexicon.leads_to.shape[1]
            if options.shortlist > kept < len(self.target.vocabulary):
                what = f"shortlist {options.shortlist}: the lexicon knows {kept} target tokens of each source token"
                raise SeqloomError("E_USAGE", what, fix=f"at most {kept}")
        asking = Asking.of(options, self.recipe.search, self.codecs)
        self._asked = [(options, asking), *self._asked[:3]]
        return asking

    def prediction(
        self,
        text: str,
        extras: Mapping[str, str],
        encoded: Encoded,
        hypotheses: Sequence[Hypothesis],
        options: Options,
    ) -> Prediction:
        """Hypotheses for one encoded text as a person reads them."""
        outputs = [self._output(text, encoded, hypothesis, options) for hypothesis in hypotheses]
        return answered(text, extras, encoded, outputs, self.calibration)

    def _output(self, text: str, encoded: Encoded, hypothesis: Hypothesis, options: Options) -> Output:
        pieces = self.codecs.said(hypothesis.tokens, encoded.foreign)
        if options.replace_unknown:
            pieces = known_pieces(self, text, encoded, hypothesis, pieces)
        begun = self.source.pieces(encoded.source) if self.codecs.continues else ()
        return Output(
            text=self.target.tokenizer.decode([*begun, *pieces]),
            tokens=tuple(pieces),
            token_scores=hypothesis.token_log_probs,
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            truncated=hypothesis.truncated,
        )

    # --- one text, looked at closely ---------------------------------------------------------------------------------

    def stream(self, text: Inputs, **options: object) -> Iterator[str]:
        """The answer to one text in pieces, as soon as they are certain; together they are what `model(text)` says."""
        chosen = validated(Options, options, "options")
        refuse_streaming(chosen)
        _, extras, parts = self.reader.read(text, chosen, "the text")
        for part, gap in parts:
            encoded = self.codecs.encode({**extras, "source": part})
            if part.strip() and encoded.own:
                yield from pieces_of_text(self, encoded, chosen)
            if gap:
                yield gap

    def alternatives(self, text: Inputs, prefix: str = "", k: int = 5, **options: object) -> list[Alternative]:
        """The k likeliest next tokens after a beginning of the answer, each with the whole answer it leads to."""
        if k < 1:
            raise SeqloomError("E_USAGE", f"{k} alternatives: at least 1")
        chosen = validated(Options, {**options, "prefix": prefix, "split": False}, "options")
        self.refuse_long([text], chosen)
        return alternatives(self, text, k, chosen)

    def explain(
        self, text: Inputs, target: str | None = None, edits: Edits | None = None, likeliest: int = 5, **options: object
    ) -> Explanation:
        """Why it answers a text as it does, or what it thinks of a given target: weights, probabilities, the beam."""
        from seqloom.api.explain import Question, explain  # most models are never asked

        return explain(self, Question(text, target, edits, likeliest), validated(Options, options, "options"))

    # --- given targets -----------------------------------------------------------------------------------------------

    def score(self, pairs: Iterable[tuple[Inputs, str]], batch_tokens: int = 8192) -> list[PairScore]:
        """log P(target given source) of given pairs, token by token (the end included), in order."""
        texts = [(*self.codecs.texts(inputs, f"pair {i}"), target) for i, (inputs, target) in enumerate(pairs, start=1)]
        encoded = [
            self.codecs.pair({**extras, "source": source}, target, i)
            for i, (source, extras, target) in enumerate(texts)
        ]
        lengths = np.array([max(read.length, len(pair.target)) for pair, read in encoded], dtype=np.int64)
        scores: list[PairScore | None] = [None] * len(texts)
        for batch in in_order(lengths, batch_tokens):
            rows = [encoded[i] for i in batch]
            for (pair, read), nll in zip(rows, self._nll(collate_pairs([pair for pair, _ in rows])), strict=True):
                pieces = (*self.codecs.said(pair.target.tolist(), read.foreign), *self._end)
                source, extras, target = texts[pair.index]
                scores[pair.index] = PairScore(source, target, pieces, tuple(-value for value in nll), extras)
        return [score for score in scores if score is not None]

    @torch.inference_mode()
    def _nll(self, batch: Batch) -> list[list[float]]:
        batch = batch.to(self.device)
        assert batch.target is not None
        with self.precision():
            values = (self.network.nll(batch) if self.scorer is None else _stepped_nll(self.scorer, batch)).cpu()
        lengths = (batch.target.lengths - 1 + len(self._end)).tolist()
        return [row[:length].tolist() for row, length in zip(values, lengths, strict=True)]

    @property
    def _end(self) -> tuple[str, ...]:
        """How the end of an output is shown beside its tokens; not at all where it is certain."""
        return () if self.network.decoder.sure_of_end else ("<eos>",)

    def __repr__(self) -> str:
        languages = f"{self.recipe.languages.source} -> {self.recipe.languages.target}"
        kinds = " -> ".join(kind_of(part) for part in self.recipe.model.parts.values())
        return f"Model({self.name!r}, {languages}, {kinds}, {parameters(self.network):,} parameters)"


def _stepped_nll(scorer: Scorer, batch: Batch) -> Nll:
    """Teacher forcing of anything that search can step (an ensemble), token by token."""
    assert batch.target is not None
    state = scorer.start(batch.sources, 1)
    columns = []
    for read, wanted in zip(shifted(batch.target).ids.T, batch.target.ids.T, strict=True):
        log_probs, state = scorer.step(read, state)  # B W
        columns.append(-log_probs.gather(1, wanted[:, None])[:, 0])
    return torch.stack(columns, dim=1)
