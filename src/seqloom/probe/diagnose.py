"""Why an output is not its reference: search missed what the model wanted, or the model wanted something else.

Both are read by force (`forced.py`) and compared by the score that search maximises. A reference that scores higher,
and that search was free to say, is a search error; otherwise the model prefers its own output: a model error (Stahlberg
and Byrne 2019 count them so). Then the first token where both part, how the model ranked the right one there, where it
looked, and what else is wrong (`symptoms.py`).

An output that was cut off is judged as if it had ended there: search ranks what ended before what did not. Nothing here
knows a model, a file or a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64

from seqloom.config import Plain
from seqloom.probe.align import Looked, Picks
from seqloom.probe.forced import Forced
from seqloom.probe.symptoms import Compared, Symptom, named, quoted, symptoms
from seqloom.specials import UNK

Verdict = Literal["right", "model error", "search error", "out of reach", "passed over"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TOLERANCE = 1e-4  # scores nearer than this are equal: float32, summed in another order
LAST_WORDS = 5  # of what both say, before they part, that a line shows

Weights = Float64[np.ndarray, "E S"]


@dataclass(frozen=True)
class Side:
    """A text as tokens and as units: words of natural text, elsewhere each token is one."""

    text: str
    pieces: tuple[str, ...]  # of every token, as it reads
    units: tuple[str, ...]
    places: tuple[int, ...]  # of every token, the unit it is a part of; -1: none
    words: bool = True  # whether units are words


@dataclass(frozen=True)
class Spoken:
    """An output, or a reference: the text, what search says of it, and where the model looked."""

    side: Side
    forced: Forced
    score: float  # what search maximises; -inf where it could not have ended
    barred: str = ""  # why search could not say it
    ended: bool = True
    weights: Weights | None = None  # of each token and the end over the source's own tokens

    @property
    def whole(self) -> tuple[int, ...]:
        """Its tokens and its end, where it has one."""
        return (*self.forced.tokens, *([_END] if self.ended else []))


_END = -1  # no token has this id


@dataclass(frozen=True)
class Gaze:
    """How much of a step's attention lay on the source word that belongs to the right token, and where most of it."""

    aligned: str
    mass: float
    most: str
    most_mass: float

    def as_dict(self) -> dict[str, Plain]:
        return {"aligned": self.aligned, "mass": self.mass, "most": self.most, "most_mass": self.most_mass}


@dataclass(frozen=True)
class Divergence:
    """Where output and reference part: after `place` tokens the one said `said`, the other goes on with `right`.

    None stands for the end; of a right token that the model has no name for neither rank nor probability is known.
    """

    place: int
    after: str
    right: str | None
    of: str  # the word that the right token is only a part of
    rank: int | None
    probability: float | None
    said: str | None
    said_probability: float | None  # None: the output was cut off there
    gaze: Gaze | None = None
    label: bool = False  # what is said are labels

    def as_dict(self) -> dict[str, Plain]:
        return {
            "place": self.place,
            "after": self.after,
            "right": self.right,
            "of": self.of,
            "rank": self.rank,
            "probability": self.probability,
            "said": self.said,
            "said_probability": self.said_probability,
            "attention": None if self.gaze is None else self.gaze.as_dict(),
        }


@dataclass(frozen=True)
class Diagnosis:
    """One example's verdict, with what speaks for it; `line` is all of it in plain words."""

    verdict: Verdict
    source: str
    output: str
    reference: str  # the one that counts: of those that search could say the likeliest
    where: str = ""
    score: float | None = None  # of the output, as search has it; None where nothing was compared
    reference_score: float | None = None
    barred: str = ""  # why search could not say the reference, or why nothing was diagnosed
    divergence: Divergence | None = None
    symptoms: tuple[Symptom, ...] = ()

    @property
    def gap(self) -> float:
        """How much higher the output scores than the reference; 0 where nothing was compared."""
        if self.score is None or self.reference_score is None:
            return 0.0
        return self.score - self.reference_score

    @property
    def line(self) -> str:
        head, rest = _verdict_in_words(self), "; ".join(_rest_in_words(self))
        return f"{head}{'; ' if ': ' in head else ': '}{rest}" if rest else head

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON; a score beyond all numbers is null."""
        return {
            "verdict": self.verdict,
            "where": self.where,
            "source": self.source,
            "output": self.output,
            "reference": self.reference,
            "score": _finite(self.score),
            "reference_score": _finite(self.reference_score),
            "barred": self.barred,
            "divergence": None if self.divergence is None else self.divergence.as_dict(),
            "symptoms": [symptom.as_dict() for symptom in self.symptoms],
            "line": self.line,
        }


# --- judging -------------------------------------------------------------------------------------------------------


def barrier(forced: Forced, side: Side) -> str:
    """In words, why search could not have said these tokens; empty where it could."""
    pairs = zip(forced.tokens, side.pieces, strict=True)
    if unknown := [piece for token, piece in pairs if token == UNK]:
        return f"it holds {named(unknown)}, which the vocabulary lacks"
    if len(forced.tokens) > forced.limit:
        return f"it has {len(forced.tokens):,} tokens, the limit is {forced.limit:,}"
    if not forced.phrases:
        return "it lacks a phrase that must occur"
    if not all(forced.allowed):
        place = forced.allowed.index(False)
        return f"a constraint forbids {_token(side, place)}"
    if not math.isfinite(forced.log_prob):
        place = next(place for place, value in enumerate(forced.log_probs) if not math.isfinite(value))
        return f"{_token(side, place)} has no probability at all (a shortlist may lack it)"
    return ""


def counting(references: Sequence[Spoken]) -> Spoken:
    """The reference that counts: the best that search could say; where it could say none, the best of all."""
    return max(references, key=lambda one: (not one.barred, one.score))


def diagnosed(
    source: Side, output: Spoken, reference: Spoken, unknown: Sequence[str], picks: Picks | None
) -> Diagnosis:
    """The diagnosis of an output that equals none of its references, beside the one that counts.

    `picks`: whose weights tell which source word an output word came from; None: outputs are labels, of no word.
    """
    part = _divergence(source, output, reference, picks)
    case = Compared(
        source=source.units,
        output=output.side.units,
        reference=reference.side.units,
        words=output.side.words,
        unknown=unknown,
        covered=_coverages(source, output, reference),
        ended=output.ended,
    )
    barred = reference.barred
    if part is None and not barred:
        barred = "the target side writes the reference in another way (case, Unicode form)"
    return Diagnosis(
        verdict=_verdict(output, reference, same=part is None),
        source=source.text,
        output=output.side.text,
        reference=reference.side.text,
        score=output.score,
        reference_score=reference.score,
        barred=barred,
        divergence=part,
        symptoms=() if picks is None else tuple(symptoms(case)),
    )


def _verdict(output: Spoken, reference: Spoken, same: bool) -> Verdict:
    if same:  # token by token it was said: only its text is another
        return "out of reach"
    if reference.score <= output.score + TOLERANCE:
        return "model error"
    return "out of reach" if reference.barred else "search error"


def _coverages(
    source: Side, output: Spoken, reference: Spoken
) -> tuple[Float64[np.ndarray, "s"], Float64[np.ndarray, "s"]] | None:
    if output.weights is None or reference.weights is None:
        return None
    return _by_units(source, output.weights.sum(0)), _by_units(source, reference.weights.sum(0))


def _by_units(source: Side, weights: Float64[np.ndarray, "S"]) -> Float64[np.ndarray, "s"]:
    """What tokens got, summed over those of each unit."""
    totals = np.zeros(len(source.units))
    known = np.asarray(source.places) >= 0
    np.add.at(totals, np.asarray(source.places)[known], weights[known])
    return totals


# --- where they part -----------------------------------------------------------------------------------------------


def _divergence(source: Side, output: Spoken, reference: Spoken, picks: Picks | None) -> Divergence | None:
    """After the longest beginning that both share; None where they are the same, token by token."""
    wanted, said = reference.whole, output.whole
    if wanted == said:
        return None
    pairs = zip(wanted, said, strict=False)
    place = next((t for t, (one, other) in enumerate(pairs) if one != other), min(len(wanted), len(said)))
    nameless = place < len(reference.forced.tokens) and reference.forced.tokens[place] == UNK
    found = Divergence(
        place=place,
        after=" ".join(_before(reference.side, place)),
        right=_piece(reference.side, place),
        of=_word_of(reference.side, place),
        rank=None if nameless else reference.forced.ranks[place],
        probability=None if nameless else math.exp(reference.forced.log_probs[place]),
        said=_piece(output.side, place),
        said_probability=math.exp(output.forced.log_probs[place]) if place < len(said) else None,
    )
    if picks is None:
        return replace(found, label=True)
    return replace(found, gaze=_gaze(source, output, reference, place, picks))


def _before(side: Side, place: int) -> list[str]:
    """The last units before a token; of a unit that is only begun, the tokens."""
    if not side.words:
        return list(side.pieces[max(0, place - LAST_WORDS) : place])
    begun = side.places[place] if place < len(side.places) else len(side.units)
    whole = [side.units[unit] for unit in sorted({unit for unit in side.places[:place] if 0 <= unit < begun})]
    rest = "".join(piece for piece, unit in zip(side.pieces[:place], side.places, strict=False) if unit == begun)
    return [*whole, *([rest] if rest else [])][-LAST_WORDS:]


def _piece(side: Side, place: int) -> str | None:
    return side.pieces[place] if place < len(side.pieces) else None


def _word_of(side: Side, place: int) -> str:
    """The word around a piece, where it is more than that piece and marks."""
    if place >= len(side.pieces) or side.places[place] < 0:
        return ""
    word = side.units[side.places[place]]
    return "" if _bare(word) == _bare(side.pieces[place]) else word


def _bare(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


def _gaze(source: Side, output: Spoken, reference: Spoken, place: int, picks: Picks) -> Gaze | None:
    """Where the output's step looked, against the source unit that the reference's word came from.

    One step's weights could not tell both: at the divergence output and reference have read the same, and looked at
    the same. So the whole reference is aligned, each source unit going to the word that looked at it most.
    """
    if output.weights is None or reference.weights is None:
        return None
    if place >= min(len(reference.side.places), len(output.weights)):
        return None
    word = reference.side.places[place]
    looked = Looked(reference.weights.astype(np.float32)[None, None], source.places, reference.side.places)
    table = looked.by_words(picks)  # t s
    if word < 0 or not table.size:
        return None
    step = _by_units(source, output.weights[place])
    aligned, most = _claimed(table, word), int(step.argmax())
    return Gaze(source.units[aligned], float(step[aligned]), source.units[most], float(step[most]))


def _claimed(table: Float64[np.ndarray, "t s"], word: int) -> int:
    """Of the source units that no other word looked at more, the one that this word looked at most; else just that."""
    own = np.flatnonzero(table.argmax(0) == word)
    chosen = own[table[word, own].argmax()] if len(own) else table[word].argmax()
    return int(chosen)


# --- words ---------------------------------------------------------------------------------------------------------


def _token(side: Side, place: int) -> str:
    piece = _piece(side, place)
    return "the end" if piece is None else quoted(piece)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _verdict_in_words(found: Diagnosis) -> str:
    if found.verdict == "search error":
        assert found.score is not None, "a search error is a comparison of scores"
        own = f"{found.score:.3f}" if math.isfinite(found.score) else "nothing"
        return f"search error: the reference scores {found.reference_score:.3f}, the output {own}"
    if found.verdict in ("out of reach", "passed over"):
        return f"{found.verdict}: {found.barred}"
    return found.verdict


def _rest_in_words(found: Diagnosis) -> list[str]:
    said = [_parting(found.divergence, found.verdict)] if found.divergence is not None else []
    if found.verdict == "model error" and found.barred:
        said.append(f"search could not have said the reference: {found.barred}")
    return [*said, *(symptom.words for symptom in found.symptoms)]


def _parting(part: Divergence, verdict: Verdict) -> str:
    """`after "two men" the reference goes on with "ride" (rank 3, p 0.11), the model said "walk" (p 0.62)`."""
    begins = not part.place
    if part.label and begins and part.right is not None and part.said is not None and part.rank is not None:
        told = f"the right label {quoted(part.right)} has rank {part.rank:,} ({_chance(part.probability)})"
        return f"{told}, the model said {quoted(part.said)} ({_chance(part.said_probability)})"
    where = "the reference" if begins else f"after {quoted(part.after, tail=True)} the reference"
    if part.right is None:
        wanted = f"{where} {'is empty' if begins else 'ends'}"
    else:
        word = f" of {quoted(part.of)}" if part.of else ""
        wanted = f"{where} {'begins' if begins else 'goes on'} with {quoted(part.right)}{word}"
    rank = "" if part.rank is None else f" (rank {part.rank:,}, {_chance(part.probability)})"
    who = "search" if verdict == "search error" else "the model"
    if part.said_probability is None:
        taken = "the output was cut off there"
    elif part.said is None:
        taken = f"{who} ended ({_chance(part.said_probability)})"
    else:
        taken = f"{who} said {quoted(part.said)} ({_chance(part.said_probability)})"
    return f"{wanted}{rank}, {taken}{_gaze_in_words(part.gaze)}"


def _chance(probability: float | None) -> str:
    """`p 0.62`, and small ones with a digit that tells: `p 0.0003`."""
    assert probability is not None, "a rank or a token comes with its probability"
    return f"p {probability:.2f}" if probability >= 0.01 else f"p {probability:.1g}"


def _gaze_in_words(gaze: Gaze | None) -> str:
    if gaze is None:
        return ""
    told = f"; {100 * gaze.mass:.0f} % of its attention lay on {quoted(gaze.aligned)}"
    return told if gaze.aligned == gaze.most else f"{told}, {100 * gaze.most_mass:.0f} % on {quoted(gaze.most)}"
