"""What `seqloom evaluate` says of a language model: what texts cost it, and what it prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.language import LanguageEvaluation, Preference
    from seqloom.api.model import Model
    from seqloom.config import Plain
    from seqloom.data.readers import Example


class Asked(NamedTuple):
    """What of a language model is to be told besides what texts cost it."""

    contrast: str | None = None
    last_word: bool = False
    ngrams: int | None = None


class Outcome(NamedTuple):
    found: LanguageEvaluation
    counted: LanguageEvaluation | None
    preferred: list[Preference]


def completes(run: str) -> bool:
    """Is this a language model?"""
    from seqloom.api.language import completes as does

    return does(run)


def judged_language(model: Model, examples: list[Example], asked: Asked) -> Outcome:
    """Everything that was asked for."""
    from seqloom.api.datasets import Datasets
    from seqloom.api.language import contrasts, evaluate_language, evaluate_ngrams, last_words

    found, counted = evaluate_language(model, examples), None
    if asked.ngrams is not None:
        counted = evaluate_ngrams(model, asked.ngrams, Datasets(model.recipe.data).train(), examples)
    preferred = [] if asked.contrast is None else contrasts(model, read_contrasts(asked.contrast))
    if asked.last_word:
        preferred.append(last_words(model, [example.target for example in examples]))
    return Outcome(found, counted, preferred)


def read_contrasts(path: str) -> list[tuple[str, str, str]]:
    """good<TAB>bad, or good<TAB>bad<TAB>group, on every line."""
    from seqloom.data.readers import read_sources

    rows = []
    for number, line in enumerate(read_sources(path), start=1):
        cells = line.split("\t")
        if not line.strip():
            continue
        if len(cells) not in (2, 3) or not all(cell.strip() for cell in cells[:2]):
            fix = "a good text, a tab, a bad text; a tab and a group may follow"
            raise SeqloomError("E_DATA", f"{len(cells)} column(s)", where=f"{path}:{number}", fix=fix)
        rows.append((cells[0], cells[1], cells[2].strip() if len(cells) == 3 else ""))
    if not rows:
        raise SeqloomError("E_EMPTY", "no pairs to compare", where=path, fix="a good text, a tab, a bad text")
    return rows


def print_language(outcome: Outcome) -> None:
    found, counted, preferred = outcome
    every = [found] if counted is None else [found, counted]
    rows = [
        ("nats by token", *(f"{one.nll:.4f}" for one in every)),
        ("perplexity by token", *(f"{one.perplexity:.3f}" for one in every)),
        ("perplexity by word", *(f"{one.word_perplexity:,.2f}" for one in every)),
        ("bits by character", *(f"{one.bits_per_character:.4f}" for one in every)),
    ]
    share = found.unknown / max(1, found.tokens)
    notes = [f"{found.tokens:,} tokens, {found.words:,} words, {found.characters:,} characters."]
    if found.unknown:
        notes.append(
            f"{say.percent(share)} of the tokens are unknown words, which cost as one: numbers by word and by "
            "character are too low to be compared with those of other vocabularies."
        )
    columns = ("measure", "value") if counted is None else ("measure", found.name, counted.name)
    say.table(f"{found.name}: {found.texts:,} texts", columns, rows, notes)
    if preferred:
        print()
        shares = [(one.group, f"{one.pairs:,}", f"{one.accuracy:.1f} %") for one in preferred]
        say.table("What it prefers", ("group", "pairs", "right"), shares)


def as_dict(outcome: Outcome) -> dict[str, Plain]:
    counted = {} if outcome.counted is None else {"ngrams": outcome.counted.as_dict()}
    return {**outcome.found.as_dict(), **counted, "preferences": [one.as_dict() for one in outcome.preferred]}


def keep(gates: list[str], found: LanguageEvaluation) -> None:
    """E_QUALITY for every `MEASURE=VALUE` that is exceeded: of these, lower is better."""
    measures = found.as_dict()
    missed = []
    for text in gates:
        name, _, value = text.partition("=")
        try:
            measured, wanted = float(str(measures[name.strip()])), float(value)
        except (KeyError, ValueError):
            fix = "nll, perplexity, word_perplexity or bits_per_character, = and a number"
            raise SeqloomError("E_USAGE", f"--fail-under {text}", fix=fix) from None
        if measured > wanted:
            missed.append(f"{name.strip()} {measured:.3f} is over {wanted:g}")
    if missed:
        raise SeqloomError("E_QUALITY", "the quality gate was missed: " + ", ".join(missed), where=found.name)
