"""BLEU, chrF and TER: sacrebleu's own counts, scores and signatures behind our contract.

Nothing is counted here. Rows come from sacrebleu's statistics, values from its scores, so that `value(sum of rows)`
is the corpus score sacrebleu itself would print. `signature()` speaks of the references seen last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from seqloom.metrics.base import UNSEEN_REFERENCES, Metric, Statistics, Total, Values, check_parallel

if TYPE_CHECKING:
    import sacrebleu.metrics.base


class SacreMetric(Metric):
    """A metric of sacrebleu: `scorer` does all the work, `columns` is the width of its rows."""

    def __init__(self, scorer: sacrebleu.metrics.base.Metric, columns: int) -> None:
        self._scorer = scorer
        self._scorer.num_refs = UNSEEN_REFERENCES  # type: ignore[assignment]  # only printed
        self._columns = columns

    def statistics(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_parallel(predictions, references)
        if not predictions:
            return np.zeros((0, self._columns))
        streams = _streams(references)
        rows = self._scorer._extract_corpus_statistics(predictions, streams)  # type: ignore[arg-type]  # None is allowed
        return np.array(rows, dtype=np.float64)

    def value(self, total: Total) -> float:
        # A list, because sacrebleu's add-k smoothing adds to what it is given.
        return float(self._scorer._compute_score_from_stats(total.tolist()).score)

    def signature(self) -> str:
        return str(self._scorer.get_signature())


def _streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Sentences of references -> sacrebleu's streams: stream i holds everybody's i-th reference, None where missing."""
    most = max(len(wanted) for wanted in references)
    return [[wanted[i] if i < len(wanted) else None for wanted in references] for i in range(most)]


class Bleu(SacreMetric):
    """BLEU of any order (Papineni et al. 2002): brevity penalty x geometric mean of clipped n-gram precisions."""

    class Settings(Metric.Settings):
        kind: Literal["bleu"] = "bleu"
        order: int = Field(4, ge=1, le=12)
        tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a"
        lowercase: bool = False
        smooth: Literal["exp", "floor", "add-k", "none"] = "exp"

    def __init__(self, settings: Settings) -> None:
        from sacrebleu.metrics.bleu import BLEU

        def scorer(effective_order: bool) -> BLEU:
            return BLEU(
                lowercase=settings.lowercase,
                force=True,  # no warnings about tokenised periods at every validation
                tokenize=settings.tokenize,
                smooth_method=settings.smooth,
                max_ngram_order=settings.order,
                effective_order=effective_order,
            )

        super().__init__(scorer(effective_order=False), columns=2 + 2 * settings.order)
        self._sentence_scorer = scorer(effective_order=True)
        self._order = settings.order
        self.name = "BLEU" if settings.order == 4 else f"BLEU-{settings.order}"

    def sentence_values(self, statistics: Statistics) -> Values:
        """BLEU with sacrebleu's effective order, so that a right output of three words is not worth 0."""
        scores = [self._sentence_scorer._compute_score_from_stats(row.tolist()).score for row in statistics]
        return np.array(scores, dtype=np.float64)

    def signature(self) -> str:
        signature = self._scorer.get_signature()
        if self._order != 4:  # sacrebleu takes 4 for granted and leaves it out
            signature.update("order", self._order)
        return str(signature)


class Chrf(SacreMetric):
    """chrF (Popović 2015): F-beta of character n-grams; `word_order: 2` is chrF++."""

    class Settings(Metric.Settings):
        kind: Literal["chrf"] = "chrf"
        char_order: int = Field(6, ge=1, le=12)
        word_order: int = Field(0, ge=0, le=4)
        beta: int = Field(2, ge=1)
        lowercase: bool = False
        whitespace: bool = False

    def __init__(self, settings: Settings) -> None:
        from sacrebleu.metrics.chrf import CHRF

        scorer = CHRF(
            char_order=settings.char_order,
            word_order=settings.word_order,
            beta=settings.beta,
            lowercase=settings.lowercase,
            whitespace=settings.whitespace,
        )
        super().__init__(scorer, columns=3 * (settings.char_order + settings.word_order))
        self.name = f"chrF{settings.beta}" + "+" * settings.word_order


class Ter(SacreMetric):
    """Translation edit rate (Snover et al. 2006): edits and shifts per word of the average reference, in %."""

    higher_is_better: ClassVar[bool] = False

    class Settings(Metric.Settings):
        kind: Literal["ter"] = "ter"
        normalized: bool = False
        no_punct: bool = False
        asian_support: bool = False
        case_sensitive: bool = False

    def __init__(self, settings: Settings) -> None:
        from sacrebleu.metrics.ter import TER

        scorer = TER(
            normalized=settings.normalized,
            no_punct=settings.no_punct,
            asian_support=settings.asian_support,
            case_sensitive=settings.case_sensitive,
        )
        super().__init__(scorer, columns=2)
        self.name = "TER"
