"""Which labels are there, which are found, and which cannot be: what is special to models that say labels or tags.

How often training saw a word tells nothing about labels, of which there are few; how well each is told from the others
does. Labels that training has not are counted: no output can be right there, however good the model is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from seqloom.api.model import Model
from seqloom.config import Plain
from seqloom.data.codecs import Codecs
from seqloom.data.examples import Example
from seqloom.data.filters import Counts, encoded
from seqloom.data.judgments import Agreement, agreement_of
from seqloom.errors import SeqloomError
from seqloom.metrics import Metric
from seqloom.metrics.labels import MAX_LABELS, Cut, LabelRow, per_label
from seqloom.metrics.spans import per_span_type, write_spans
from seqloom.recipe import Recipe


def check_labels(
    recipe: Recipe, codecs: Codecs, examples: Callable[[], Iterator[Example]], where: str, tell: Callable[[str], None]
) -> None:
    """E_DATA where there is nothing to tell apart; a word of caution where metrics would cut labels in two."""
    labels = codecs.target.vocabulary.ordinary
    if not recipe.model.labels or len(labels) > MAX_LABELS:
        return
    may_have_none = "target" in recipe.model.may_be_empty  # then one label or none is a choice as well
    if len(labels) == 1 and not (may_have_none and any(not example.target.strip() for example in examples())):
        what, fix = f"all examples have the label {labels[0]!r}", "give examples of at least two labels"
        if recipe.model.in_place:
            what, fix = f"all words have the tag {labels[0]!r}", "give words of at least two tags"
        columns = "; or is another column the label? (columns: [source, label])"
        raise SeqloomError("E_DATA", what, where=where, fix=fix + columns)
    cut = [metric.name for metric in recipe.evaluation.build() if metric.of_labels]
    if cut and any(len(label.split()) > 1 for label in labels):
        named = next(label for label in labels if len(label.split()) > 1)
        tell(f"caution: {', '.join(cut)} counts the words of labels such as {named!r}; 'exact' counts whole labels")


def refuse_unfit(model: Model, examples: Iterable[Example]) -> None:
    """E_ALIGN or E_DATA, with file and line, for what a model cannot be judged by.

    That is an example that has not one tag for each word, and a reference that is no number where numbers are said.
    """
    for example in examples:
        for reference in example.references:
            model.target.tokenizer.refuse(reference, example.where)
        if model.codecs.in_place:
            encoded(example, model.codecs, model.recipe.data.limits, Counts())


def judges_of(examples: Sequence[Example], metrics: Sequence[Metric], model: Model | None) -> Agreement | None:
    """How far the judges of these examples agree; None where outputs are texts, whose references are no judgments."""
    numbers = model.recipe.model.measures if model is not None else any(metric.of_numbers for metric in metrics)
    cut = _cut(metrics, model)
    if cut is None and not numbers:
        return None
    references = [example.references for example in examples]
    return agreement_of(references, numbers) if cut is None else agreement_of(references, cut=cut.labels)


def _cut(metrics: Sequence[Metric], model: Model | None) -> Cut | None:
    """How outputs are read as labels: as the model has it, or without one the metrics; None where they are none."""
    are_labels = any(metric.of_labels for metric in metrics) if model is None else model.recipe.model.labels
    separator = next((metric.separator for metric in metrics if metric.separator is not None), None)
    if not (are_labels or separator) or (model is not None and model.recipe.model.measures):
        return None
    return Cut(separator is None and model is not None and not model.recipe.model.in_place, separator)


@dataclass(frozen=True)
class LabelTables:
    """One row per label; one per type of span where tags write spans."""

    labels: tuple[LabelRow, ...]
    spans: tuple[LabelRow, ...] | None = None
    unseen: Mapping[str, int] = field(default_factory=dict)  # label of references that training has not -> how often

    @classmethod
    def of(
        cls,
        outputs: Sequence[str],
        references: Sequence[Sequence[str]],
        metrics: Sequence[Metric],
        model: Model | None,
    ) -> LabelTables | None:
        """None where outputs are no labels: as the model has it, or without one the metrics."""
        cut = _cut(metrics, model)
        if cut is None:
            return None
        rows = per_label(outputs, references, cut)
        if len(rows) > MAX_LABELS:
            return None
        tags = not cut.whole and cut.separator is None
        spans = tuple(per_span_type(outputs, references)) if tags and write_spans(references) else None
        return cls(tuple(rows), spans, {} if model is None else _unseen(model, references, cut))

    def as_dict(self) -> dict[str, Plain]:
        return {
            "by_label": [asdict(row) for row in self.labels],
            "by_span": None if self.spans is None else [asdict(row) for row in self.spans],
            "unseen_labels": dict(self.unseen),
        }


NO_TABLES: dict[str, Plain] = {"by_label": None, "by_span": None, "unseen_labels": None}


def _unseen(model: Model, references: Sequence[Sequence[str]], cut: Cut) -> dict[str, int]:
    """The most frequent first."""
    found: Counter[str] = Counter()
    for wanted in references:
        text = (cut.separator or " ").join(cut.gold(wanted))
        found.update(piece for piece in model.target.tokens(text) if piece not in model.target.vocabulary)
    return dict(found.most_common())


def seen(model: Model, target: str) -> bool:
    """Whether training has all labels of this target."""
    return all(piece in model.target.vocabulary for piece in model.target.tokens(target))
