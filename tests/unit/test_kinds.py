"""What data are for is guessed from their look: labels, tags and text are known, and what is written is not chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from seqloom.data.kinds import guessed, task_of
from seqloom.data.readers import Example, dataset_settings, read
from seqloom.data.sniffing import meant, recognised
from seqloom.models.model import MODELS

NOUNS = ["weather", "music", "train", "letter", "river", "house", "teacher", "cheese", "winter", "garden", "doctor"]
VERBS = ["plays", "sees", "finds", "wants", "brings", "leaves", "likes", "hears", "sells", "paints"]
RNG = random.Random(1)


def sentence(length: int = 6) -> str:
    return " ".join(RNG.choice(NOUNS + VERBS) + RNG.choice(["", "", "s", "ly"]) for _ in range(RNG.randint(3, length)))


def examples(pairs: Iterator[tuple[str, str]] | list[tuple[str, str]], **extras: str) -> list[Example]:
    return [Example(source, (target,), "x.tsv", line, extras) for line, (source, target) in enumerate(pairs, 1)]


def guess(make: Callable[[], tuple[str, str]], count: int = 1_000) -> str:
    return guessed("tsv", examples([make() for _ in range(count)])).task


def drawn(*labels: str) -> Callable[[], tuple[str, str]]:
    return lambda: (sentence(), RNG.choice(labels))


INTENTS = [f"{verb}_{noun}" for verb in ("play", "find", "book") for noun in ("music", "weather", "train", "table")]
NAMED_IN_PART = {verb: f"{verb[:-1]}_{noun}" for verb, noun in zip(VERBS, NOUNS, strict=False)}


def intent() -> tuple[str, str]:
    """A label whose words stand in the source now and then, as those of intents do."""
    verb = RNG.choice(VERBS)
    return f"{sentence()} {verb if RNG.random() < 0.5 else ''} please", NAMED_IN_PART[verb]


LABELS: dict[str, Callable[[], tuple[str, str]]] = {
    "0 and 1": drawn("0", "1"),
    "a and b, which are words as well": lambda: (f"a {sentence()}", RNG.choice(["a", "b"])),
    "long names": drawn("World news", "Sports", "Business", "Science and technology"),
    "degrees": drawn("very negative", "negative", "neutral", "positive", "very positive"),
    "two levels": drawn(*(f"{coarse}:{coarse}{fine}" for coarse in "abcdef" for fine in "uvwxyz")),
    "intents": drawn(*INTENTS),
    "intents that are named in part": intent,
    "signs": drawn("😀", "😐", "😡"),
    "genders of names": lambda: (RNG.choice("ABCD") + "".join(RNG.choices("aeilmnor", k=6)), RNG.choice(["f", "m"])),
    "one and the same": drawn("spam"),
}


@pytest.mark.parametrize("name", LABELS)
def test_few_targets_of_many_sources_are_labels(name: str) -> None:
    assert guess(LABELS[name]) == "label"


def several_topics() -> tuple[str, str]:
    """Some of a few topics, or none, whatever their order."""
    return sentence(), ";".join(RNG.sample(["sport", "arts", "world news", "money"], RNG.randint(1, 3)))


def test_sets_of_few_labels() -> None:
    assert guess(several_topics) == "labels"


def test_numbers_that_repeat_themselves_and_have_fractions() -> None:
    assert guess(drawn(*(f"{grade / 10:.1f}" for grade in range(10, 50)))) == "number"
    assert guess(drawn("1", "2", "3", "4", "5")) == "label", "whole numbers may be names of classes"


START = date(2024, 1, 1)


def written_date(days: int) -> Callable[[], tuple[str, str]]:
    def made() -> tuple[str, str]:
        day = START + timedelta(RNG.randrange(days))
        forms = ["%d %B %Y", "%B %d, %Y", "on %A, %B %d, %Y", "the %d of %B %Y"]
        words = RNG.choice(["", "deliver ", "we met ", "due "])
        return words + day.strftime(RNG.choice(forms)), day.isoformat()

    return made


UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def number() -> tuple[str, str]:
    value = RNG.randrange(100)
    return str(value), f"{UNITS[value // 10]} {UNITS[value % 10]}"


def command() -> tuple[str, str]:
    """Many ways to say few programs."""
    verbs, times = RNG.choices(["walk", "run", "jump"], k=2), RNG.choices([1, 2, 3], k=2)
    said = " and ".join(f"{verb} {'again ' * (count - 1)}" for verb, count in zip(verbs, times, strict=True))
    polite = " ".join(RNG.choices(["please", "now", "quickly", "kindly", "friend"], k=RNG.randint(0, 4)))
    done = [verb.upper() for verb, count in zip(verbs, times, strict=True) for _ in range(count)]
    return f"{polite} {said}", " ".join(done)


def found_word() -> tuple[str, str]:
    """The word that is asked for stands in its source."""
    noun = RNG.choice(NOUNS)
    return f"{sentence()} the {noun} {sentence()}", noun


def letters() -> tuple[str, str]:
    word = "".join(RNG.choices("abcdefgh", k=RNG.randint(3, 7)))
    return word, " ".join(word.upper())


WRITTEN: dict[str, Callable[[], tuple[str, str]]] = {
    "dates of many years": written_date(8_000),
    "dates of half a year": written_date(180),
    "dates of two months": written_date(60),
    "numbers in words": number,
    "commands": command,
    "a word of the source": found_word,
    "pronunciations": letters,
    "translations": lambda: (sentence(), sentence(9)),
    "few pairs with few targets": lambda: (RNG.choice(NOUNS[:5]), RNG.choice(["x", "y"])),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_put_together_or_copied_is_written_and_no_label(name: str) -> None:
    assert guess(WRITTEN[name], 3_000) == "transduce"


def tagged(*, shift: int = 0) -> tuple[str, str]:
    words = [RNG.choice(NOUNS) + RNG.choice(["", "s"]) if RNG.random() < 0.5 else RNG.choice(VERBS) for _ in range(5)]
    tags = ["V" if word in VERBS else "N" for word in words]
    return " ".join(words), " ".join(tags[shift:])


def digits() -> list[str]:
    return [str(RNG.randrange(10)) for _ in range(RNG.randint(2, 8))]


def turned() -> tuple[str, str]:
    row = digits()
    return " ".join(row), " ".join(reversed(row))


def word_by_word() -> tuple[str, str]:
    row = digits()
    return " ".join(row), " ".join(UNITS[int(digit)] for digit in row)


def test_a_closed_set_of_equally_many_words_is_tags() -> None:
    assert guess(tagged, 300) == "tags"
    mostly = [tagged() for _ in range(300)] + [tagged(shift=1)]
    assert guessed("tsv", examples(mostly)).task == "tags", "one mistake is for `check` to find"
    assert guessed("tsv", examples(mostly, more="x")).task == "transduce", "further sources have no words to tag"


@pytest.mark.parametrize("make", [turned, word_by_word, lambda: tagged(shift=1), lambda: (sentence(), sentence())])
def test_equally_many_words_alone_are_no_tags(make: Callable[[], tuple[str, str]]) -> None:
    assert guess(make, 300) == "transduce"


def test_files_of_words_are_tags_unless_there_are_too_many_of_them() -> None:
    assert guessed("conllu", examples([tagged() for _ in range(3)])).task == "tags"
    lemmas = [(f"w{i} x{i}", f"l{i} m{i}") for i in range(600)]
    assert guessed("conllu", examples(lemmas)).task == "transduce"


def test_columns_that_look_swapped_or_wrong_are_doubted() -> None:
    swapped = guessed("tsv", examples([(label, text) for text, label in (LABELS["0 and 1"]() for _ in range(500))]))
    assert (swapped.task, "[1, 0]" in swapped.doubt) == ("transduce", True)
    again = guessed("tsv", examples([(f"a{i % 5}", f"b{i % 5}") for i in range(500)]))
    assert "only 5 are different" in again.doubt
    text = guessed("text", examples([("", f"{sentence()}\t{sentence()}") for _ in range(20)]))
    assert (text.task, "kind: tsv" in text.doubt) == ("language", True)
    assert guessed("text", examples([("", sentence()) for _ in range(20)])).doubt == ""


@pytest.mark.parametrize(
    ("raw", "task"),
    [
        ({"kind": "encoder_decoder"}, "transduce"),
        ({"kind": "encoder_decoder", "decoder": {"kind": "label"}}, "label"),
        ({"kind": "encoder_decoder", "decoder": {"kind": "tags"}}, "tags"),
        ({"kind": "language"}, "language"),
    ],
)
def test_a_recipe_says_it_by_its_model(raw: dict[str, object], task: str) -> None:
    assert task_of(MODELS.settings(raw)) == task


# --- bare names --------------------------------------------------------------------------------------------------

SENTENCES = "Al PROPN\nsees VERB\nher PRON\n\nShe PRON\nsees VERB\nAl PROPN\n\nAl PROPN\nruns VERB\n\n"
CONLLU = "# text = Al runs\n1\tAl\tAl\tPROPN\t_\t_\t2\tnsubj\t_\t_\n2\truns\trun\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_words_and_tags_in_columns_are_recognised(tmp_path: Path) -> None:
    blanks, tabs = put(tmp_path, "a.txt", SENTENCES), put(tmp_path, "a.tsv", SENTENCES.replace(" ", "\t"))
    assert recognised(blanks) == {"kind": "columns", "path": blanks}
    assert recognised(tabs) == {"kind": "columns", "path": tabs, "separator": "tab"}
    assert [one.target for one in read(dataset_settings(recognised(tabs)))] == [
        "PROPN VERB PRON",
        "PRON VERB PROPN",
        "PROPN VERB",
    ]
    three = put(tmp_path, "b.conll", SENTENCES.replace("\n", " X\n").replace("\n X\n", "\n\n"))
    assert recognised(three) == {"kind": "columns", "path": three, "tag": 1}
    other = put(tmp_path, "c.tsv", CONLLU)
    assert recognised(other) == {"kind": "conllu", "path": other}
    assert recognised(put(tmp_path, "c.conllu", CONLLU)) == str(tmp_path / "c.conllu"), "the name says it"


@pytest.mark.parametrize(
    "text",
    [
        "a\tb\nc\td\n",
        "a\tb\n\nc\td\n\ne\tf\ng\th\n",  # pairs with stray blank lines
        "To be or\nnot to\n\nbe that\nis the question\n\nhere now\n",
        "",
    ],
)
def test_pairs_and_prose_are_not_taken_for_columns(text: str, tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", text)
    assert recognised(path) == path


def test_only_bare_names_are_looked_into(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tsv", SENTENCES)
    assert recognised({"path": path}) == {"path": path}
    assert recognised("-") == "-"
    assert meant(path, "language") == {"kind": "text", "path": path}
    assert meant(path, "label") == path
