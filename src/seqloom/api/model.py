"""A loaded model: text in, text out, lists in, lists out.

`Model` joins codecs, network and search. It tokenises, splits paragraphs, batches, searches, restores order and says
how confident it is; it writes no file and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import overload

import numpy as np
import torch

from seqloom.api.options import Options
from seqloom.api.predictions import Output, Prediction, joined, passed_over
from seqloom.batch import UNK, Batch, Tokens
from seqloom.config import kind_of, validated
from seqloom.data.batching import collate_pairs, ended, in_order
from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Pair
from seqloom.data.sentences import split_sentences
from seqloom.errors import SeqloomError
from seqloom.metrics.calibration import Calibration
from seqloom.metrics.perplexity import perplexity
from seqloom.models.contracts import Scorer
from seqloom.models.generator import Generator, shifted
from seqloom.recipe import Recipe, parameters
from seqloom.search.constraints import CONSTRAINTS, Constraint
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import search
from seqloom.shapes import Nll

CHUNK_LINES = 4096  # lines that are sorted by length together; bounds memory on endless input
SENTENCES_PER_LINE = 1.2  # a run whose training lines hold more than this learned paragraphs, and gets paragraphs


@dataclass(frozen=True)
class PairScore:
    """How probable a given target is: log P(target given source), in all and per token (the last is the end)."""

    source: str
    target: str
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        return sum(self.token_scores)

    @property
    def perplexity(self) -> float:
        return perplexity(-self.log_prob, len(self.token_scores))


@dataclass
class Model:
    """`model("text")` gives a `Prediction`; `model(["a", "b"])` a list of them."""

    name: str
    recipe: Recipe
    source: TextCodec
    target: TextCodec
    network: Generator
    about: Mapping[str, object] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    scorer: Scorer | None = None  # what search steps instead of the network: an ensemble

    def __post_init__(self) -> None:
        self.network.to(self.device).eval()

    @overload
    def __call__(self, text: str, **options: object) -> Prediction: ...
    @overload
    def __call__(self, text: list[str] | tuple[str, ...], **options: object) -> list[Prediction]: ...
    def __call__(self, text: str | list[str] | tuple[str, ...], **options: object) -> Prediction | list[Prediction]:
        """Predict one text, or several; keywords are those of `Options` (beam=5, n_best=3, prefix="...")."""
        chosen = validated(Options, options, "options")
        if isinstance(text, str):
            return next(self.predict([text], chosen))
        return list(self.predict(text, chosen))

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict(
        self, texts: Iterable[str], options: Options | None = None, chunk: int = CHUNK_LINES, name: str = ""
    ) -> Iterator[Prediction]:
        """One prediction per text, in order, however long the input is. Empty lines give empty answers.

        `chunk` lines are read before the first is answered; `name` is that of the input, for errors.
        """
        options = options or Options()
        options.searching(self.recipe.search)  # what cannot be met is said before anything is read
        iterator = enumerate(texts, start=1)
        while lines := list(islice(iterator, chunk)):
            yield from self._predict_lines(lines, options, name)

    def refuse_long(self, texts: Iterable[str], options: Options, name: str = "") -> None:
        """Look for sources over the recipe's maximum that `options` do not provide for, before the first answer."""
        for number, text in enumerate(texts, start=1):
            self._parts(text, options, _place(name, number))

    def _predict_lines(self, lines: Sequence[tuple[int, str]], options: Options, name: str) -> Iterator[Prediction]:
        pieces: list[str] = []
        plans: list[list[str]] = []  # per line, the gap after each of its pieces
        for number, line in lines:
            parts = self._parts(line, options, _place(name, number))
            pieces += [text for text, _ in parts]
            plans.append([gap for _, gap in parts])
        answers = iter(self._answers(pieces, options))
        for (_, line), gaps in zip(lines, plans, strict=True):
            yield joined(line, list(islice(answers, len(gaps))), gaps)

    def _parts(self, line: str, options: Options, where: str) -> list[tuple[str, str]]:
        """What of a line goes to the network one by one, and the white space that follows each."""
        parts = _by_line(line)
        splits = self.splits_sentences if options.split is None else options.split
        if splits and options.n_best == 1:
            parts = [part for block, gap in parts for part in _sentences(block, gap)]
        fitting = [self._fitting(text, gap, options, where) for text, gap in parts]
        if any(not shorter for shorter in fitting):  # to be skipped: the whole line, never a part of it
            return []
        return [part for shorter in fitting for part in shorter]

    def _fitting(self, text: str, gap: str, options: Options, where: str) -> list[tuple[str, str]]:
        """A text within the recipe's maximum as it is; a longer one as `on_long` says (nothing: it is skipped)."""
        most = self.recipe.data.limits.max_source
        count = len(self.source.encode(text)) if len(text) > most // 8 else 0
        if count <= most:
            return [(text, gap)]
        if options.on_long == "skip":
            return []
        if options.on_long == "split":
            words = text.split(" ")
            if len(words) > 1:
                half = len(words) // 2
                halves = ((" ".join(words[:half]), " "), (" ".join(words[half:]), gap))
                return [shorter for part, after in halves for shorter in self._fitting(part, after, options, where)]
        raise SeqloomError(
            "E_LONG",
            f"a source of {count:,} tokens, the recipe's maximum is {most:,}",
            where=where,
            fix="--on-long split or --on-long skip, or a larger data.limits.max_source in training",
        )

    @property
    def splits_sentences(self) -> bool:
        """Did this run learn single sentences of natural text?"""
        learned = self.about.get("sentences_per_line")
        return (
            self.source.tokenizer.text_like
            and self.target.tokenizer.text_like
            and isinstance(learned, float)
            and learned <= SENTENCES_PER_LINE
        )

    def _answers(self, texts: Sequence[str], options: Options) -> list[Prediction]:
        """Batched by length, answered, and put back in order."""
        answers = [passed_over(text) for text in texts]
        encoded = {i: ids for i, text in enumerate(texts) if text.strip() and (ids := self.source.encode(text))}
        places = list(encoded)
        lengths = np.array([len(encoded[i]) for i in places], dtype=np.int64)
        for batch in in_order(lengths, options.batch_tokens, 1 if options.deterministic else None):
            indices = [places[row] for row in batch]
            found = self.search([np.asarray(encoded[i]) for i in indices], options)
            for i, hypotheses in zip(indices, found, strict=True):
                answers[i] = self._prediction(texts[i], encoded[i], hypotheses[: options.n_best])
        return answers

    def search(self, sources: Sequence[np.ndarray], options: Options) -> list[list[Hypothesis]]:
        """Hypotheses for encoded sources, as one batch."""
        searching = options.searching(self.recipe.search)
        tokens = ended(sources).to(self.device)
        prefixes = None
        if options.prefix:
            prefixes = Tokens.pad([self.target.encode(options.prefix)] * len(sources)).to(self.device)
        return search(
            self.scorer or self.network,
            {"source": tokens},
            searching.strategy,
            limits=searching.limits,
            constraints=self._constraints(options),
            prefixes=prefixes,
        )

    def _constraints(self, options: Options) -> list[Constraint]:
        chosen: list[Constraint] = []
        if options.banned:
            ids = [token for text in options.banned for token in self._spelled(text)]
            chosen.append(CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned", "tokens": ids})))
        if options.no_repeat is not None:
            chosen.append(CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "no_repeat", "ngram": options.no_repeat})))
        return chosen

    def _spelled(self, text: str) -> list[int]:
        """Every token that reads as `text`, with or without a mark of how it is attached."""
        vocabulary, surface = self.target.vocabulary, self.target.tokenizer.surface
        first = len(vocabulary) - len(vocabulary.ordinary)
        found = [i for i, piece in enumerate(vocabulary.ordinary, start=first) if text in (piece, surface(piece))]
        if not found:
            fix = "ban a single token of the target vocabulary"
            raise SeqloomError("E_USAGE", f"{text!r} is no token of this model", where="--ban", fix=fix)
        return found

    def _prediction(self, text: str, source: Sequence[int], hypotheses: Sequence[Hypothesis]) -> Prediction:
        outputs = tuple(
            Output(
                text=self.target.decode(hypothesis.tokens),
                tokens=tuple(self.target.pieces(hypothesis.tokens)),
                token_scores=hypothesis.token_log_probs,
                log_prob=hypothesis.log_prob,
                score=hypothesis.score,
                truncated=hypothesis.truncated,
            )
            for hypothesis in hypotheses
        )
        confidence = self.calibration.confidence(outputs[0].log_prob, len(outputs[0].tokens))
        unknown = list(source).count(UNK) / len(source)
        return Prediction(text, outputs, confidence, unknown, length=len(source))

    # --- given targets -----------------------------------------------------------------------------------------------

    def score(self, pairs: Iterable[tuple[str, str]], batch_tokens: int = 8192) -> list[PairScore]:
        """log P(target given source) of given pairs, token by token (the end included), in order."""
        texts = list(pairs)
        encoded = [
            Pair(np.asarray(self.source.encode(source)), np.asarray(self.target.encode(target)), index)
            for index, (source, target) in enumerate(texts)
        ]
        lengths = np.array([max(len(pair.source), len(pair.target)) for pair in encoded], dtype=np.int64)
        scores: list[PairScore | None] = [None] * len(texts)
        for batch in in_order(lengths, batch_tokens):
            rows = [encoded[i] for i in batch]
            for pair, nll in zip(rows, self._nll(collate_pairs(rows)), strict=True):
                pieces = (*self.target.pieces(pair.target.tolist()), "<eos>")
                source, target = texts[pair.index]
                scores[pair.index] = PairScore(source, target, pieces, tuple(-value for value in nll))
        return [score for score in scores if score is not None]

    @torch.inference_mode()
    def _nll(self, batch: Batch) -> list[list[float]]:
        batch = batch.to(self.device)
        assert batch.target is not None
        values = (self.network.nll(batch) if self.scorer is None else _stepped_nll(self.scorer, batch)).cpu()
        return [row[:length].tolist() for row, length in zip(values, batch.target.lengths.tolist(), strict=True)]

    def __repr__(self) -> str:
        languages = f"{self.recipe.languages.source} -> {self.recipe.languages.target}"
        kinds = " -> ".join(kind_of(part) for part in self.recipe.model.parts.values())
        return f"Model({self.name!r}, {languages}, {kinds}, {parameters(self.network):,} parameters)"


def _place(name: str, number: int) -> str:
    return f"{name}:{number}" if name else f"line {number:,}"


def _stepped_nll(scorer: Scorer, batch: Batch) -> Nll:
    """Teacher forcing of anything that search can step (an ensemble), token by token."""
    assert batch.target is not None
    state = scorer.start(batch.sources, 1)
    columns = []
    for read, wanted in zip(shifted(batch.target).ids.T, batch.target.ids.T, strict=True):
        log_probs, state = scorer.step(read, state)  # B W
        columns.append(-log_probs.gather(1, wanted[:, None])[:, 0])
    return torch.stack(columns, dim=1)


def _by_line(text: str) -> list[tuple[str, str]]:
    """Lines of a text with their breaks, so that breaks are kept."""
    lines = text.split("\n")
    return [(line.removesuffix("\r"), ("\r" if line.endswith("\r") else "") + "\n") for line in lines[:-1]] + [
        (lines[-1], "")
    ]


def _sentences(block: str, gap: str) -> list[tuple[str, str]]:
    """The sentences of one line; the line's own break follows the last."""
    parts = split_sentences(block)
    return [*parts[:-1], (parts[-1][0], parts[-1][1] + gap)]
