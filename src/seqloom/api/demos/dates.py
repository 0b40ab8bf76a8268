"""Date phrases in many languages, written by Babel, to ISO 8601: "3. März 2021" -> "2021-03-03".

Only phrases with one meaning are made: the month is named or marked (3月), and the year has four digits. "03/04/2021"
is another day in London than in New York, so it is not asked here. No language is taken whose months read as other
months elsewhere (Croatian "listopada" is October, in Polish it is November).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from random import Random

from seqloom.api.demos.base import INSTALL, Demo
from seqloom.errors import SeqloomError

LOCALES = (
    *("en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "fi", "pl", "cs", "hu", "tr", "vi"),  # Latin letters
    *("el", "ru", "uk", "he", "ar", "hi", "th", "ja", "zh", "ko"),
)
PHRASES = 60_000
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
LOWERCASE = 0.2  # share of phrases typed without capitals, as people do

# What people say around a long date.
SPOKEN = {
    "de": ("am {}", "den {}"),
    "es": ("el {}",),
    "fr": ("le {}",),
    "it": ("il {}",),
    "nl": ("op {}",),
    "pt": ("em {}",),
    "sv": ("den {}",),
}
ENGLISH = ("{month} {nth}, {year}", "{nth} of {month}, {year}", "the {nth} of {month} {year}", "{month} {day} {year}")

Form = Callable[[date], str]
_NAMES_ITS_MONTH = re.compile("MMM|LLL|月")


@cache
def forms(locale: str) -> tuple[Form, ...]:
    """Every way this language writes a date with one meaning."""
    try:
        from babel import Locale
        from babel.dates import parse_pattern
    except ImportError:
        raise SeqloomError("E_EXTRA", "Babel, which writes the dates, is not installed", fix=INSTALL) from None
    known = Locale.parse(locale)
    styles = [known.date_formats[style].pattern for style in ("full", "long", "medium")]
    patterns = [*styles, known.datetime_skeletons["yMMMEd"].pattern]

    def written(pattern: str, around: str = "{}") -> Form:
        parsed = parse_pattern(pattern)
        return lambda day: around.format(parsed.apply(day, known))

    made = [written(pattern) for pattern in dict.fromkeys(patterns) if _NAMES_ITS_MONTH.search(pattern)]
    made += [written(styles[1], around) for around in SPOKEN.get(locale, ())]
    if known.language == "en":
        months = known.months["format"]["wide"]
        made += [_english(pattern, [months[month] for month in range(1, 13)]) for pattern in ENGLISH]
    return tuple(made)


def _english(pattern: str, months: Sequence[str]) -> Form:
    return lambda day: pattern.format(
        month=months[day.month - 1], nth=f"{day.day}{_ending(day.day)}", day=day.day, year=day.year
    )


def _ending(day: int) -> str:
    """1st, 2nd, 3rd, 4th ... 11th, 12th, 13th ... 21st"""
    return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def pairs(count: int = PHRASES, seed: int = 1) -> Iterator[tuple[str, str]]:
    """`count` different phrases with their dates: languages, forms and days drawn evenly from a seed."""
    rng, seen, days = Random(seed), set[str](), (LAST - FIRST).days + 1
    while len(seen) < count:
        day = FIRST + timedelta(days=rng.randrange(days))
        phrase = rng.choice(forms(rng.choice(LOCALES)))(day)
        if rng.random() < LOWERCASE:
            phrase = phrase.lower()
        if phrase not in seen:
            seen.add(phrase)
            yield phrase, day.isoformat()


RECIPE = """\
# Date phrases in many languages to ISO 8601.
# Every line may be changed: `seqloom train THIS_FILE --run SOME_FOLDER` trains it anew.
# `seqloom config THIS_FILE` shows all the keys that are left at their defaults.

languages: {source: mul, target: zxx}   # many languages in, none out

data:
  train: {pairs}       # one pair per line: phrase, tab, date
  split:               # what is held out; a phrase falls into one set by a hash of itself, never into two
    dev: 0.02
    test: 0.05
    seed: 1

source: {tokenizer: characters}
target: {tokenizer: characters}

model:
  source_embedding: {width: 64}
  target_embedding: {width: 64}
  encoder: {kind: rnn, cell: gru, width: 128, bidirectional: true}
  decoder:                        # Luong, Pham and Manning (2015)
    kind: luong
    cell: gru
    width: 128
    attention: {score: additive}  # finds the month's name sooner than `bilinear` does, whatever the seed

batching: {tokens: 1024}          # phrases of like length together, about 45 of them in a step

training:
  steps: 1200
  optimiser: {kind: adam, lr: 3e-3, betas: [0.9, 0.98]}
  schedule: {kind: cosine, warmup: 100}   # to zero at the last step
  clip: 1.0
  log_every: 20
  validate_every: 400
  metric: nll                     # the best validation is what is kept

search: {strategy: greedy}

evaluation:
  metrics: [exact, cer]
  validate_examples: 300
  show: 3
"""

DATES = Demo(
    name="dates",
    about="date phrases in many languages to ISO 8601, written by Babel",
    pairs=pairs,
    recipe=RECIPE,
    sources="phrases",
    units=(("characters read", list), ("characters written", list)),
    question="the 24th of December 2024",
    called={"exact": "exact match", "cer": "CER (characters wrong)"},
)
