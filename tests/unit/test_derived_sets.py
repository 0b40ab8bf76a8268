"""Questions made of triples, and records with placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.api.public.derived import answer_in, delexicalised, filled, part_of, question, questions
from seqloom.errors import SeqloomError

HEADER = "category\tentry\tn_triples\ttriples\ttext"


def asked(*rows: tuple[str, str]) -> dict[str, list[list[str]]]:
    """What becomes of the same triples and texts in all parts."""
    lines = [HEADER, *(f"Building\tId1\t1\t{triples}\t{text}" for triples, text in rows)]
    made = questions({name: iter(lines) for name in ("train.tsv.gz", "dev.tsv.gz", "test_seen.tsv.gz")})
    return {part: [line.split("\t") for line in made[f"questions_{part}.tsv.gz"]] for part in ("train", "dev", "test")}


@pytest.mark.parametrize(
    ("subject", "predicate", "expected"),
    [
        ("Old_Mill", "floorCount", "what is the floor count of Old Mill ?"),
        ("Old_Mill", "isPartOf", "Old Mill is part of what ?"),
        ("Old_Mill", "hasToItsNorth", "Old Mill has to its north what ?"),
        ("Old_Mill", "followedBy", "Old Mill followed by what ?"),
        ("Old_Mill", "ISBN_number", "what is the ISBN number of Old Mill ?"),
        ("Old_Mill", "height_(in_metres)", "what is the height in metres of Old Mill ?"),
        ('"Old Mill, Lune"', "island", "what is the island of Old Mill, Lune ?"),
    ],
)
def test_a_predicate_becomes_a_question(subject: str, predicate: str, expected: str) -> None:
    assert question(subject, predicate) == expected


@pytest.mark.parametrize(
    ("thing", "answer"),
    [
        ("Lune", "Lune"),
        ("lune", "Lune"),
        ('"Old_Town,_Lune"', "Old Town, Lune"),
        ("Barge_(boat)", "barge"),
        ("25.0", "25"),
        ("2", ""),  # not the 2 of 25
        ("Wind", ""),
        ('""', ""),
    ],
)
def test_an_answer_is_what_the_text_says_in_whole_words(thing: str, answer: str) -> None:
    assert answer_in("The barge of 25 tons lies in Old Town, Lune.", thing) == answer


def test_every_answer_stands_in_its_text_and_no_question_has_two() -> None:
    triples = "Mill | river | Lune ; Mill | owner | Greta ; Mill | owner | Hugo ; Mill | floors | 3"
    rows = [row for part in asked((triples, "Greta and Hugo own the Mill on the Lune.")).values() for row in part]
    assert rows == [["Greta and Hugo own the Mill on the Lune.", "Lune", "what is the river of Mill ?", "river"]]


def test_a_question_is_asked_in_one_part_alone() -> None:
    parts = asked(*((f"Mill_{i} | river | Lune", f"Mill {i} is on the Lune.") for i in range(200)))
    assert sum(map(len, parts.values())) == 200
    assert len(parts["train"]) > len(parts["test"]) > len(parts["dev"]) > 0
    assert all(part_of(row[2]) == part for part, rows in parts.items() for row in rows)


def test_lines_of_another_form_are_named() -> None:
    lines = {name: iter([HEADER, "a\tb"]) for name in ("train.tsv.gz", "dev.tsv.gz", "test_seen.tsv.gz")}
    with pytest.raises(SeqloomError, match="2 columns where 5 are expected") as caught:
        list(questions(lines)["questions_dev.tsv.gz"])
    assert caught.value.code == "E_DATA"
    assert "dev.tsv.gz:2" in str(caught.value)


def opened(record: str, sentence: str) -> list[str]:
    _, line = delexicalised({"test.tsv.gz": iter(["mr\tref", f"{record}\t{sentence}"])})["delexicalised_test.tsv.gz"]
    return str(line).split("\t")


def test_names_become_placeholders_as_whole_words() -> None:
    record, sentence, name, near = opened(
        "name[Mill], food[Thai], near[Mill Pier]", "Mill, a Windmill by Mill Pier, is no mill; Mill's food is Thai."
    )
    assert record == "name[X_name], food[Thai], near[X_near]"
    assert sentence == "X_name, a Windmill by X_near, is no mill; X_name's food is Thai."
    assert (name, near) == ("Mill", "Mill Pier")


def test_a_name_that_is_not_said_stays_in_the_record_alone() -> None:
    assert opened("name[Mill], near[Pier]", "It is by the river.") == [
        "name[X_name], near[X_near]",
        "It is by the river.",
        "Mill",
        "Pier",
    ]
    assert opened("name[Mill]", "Mill.")[3] == ""


words = st.lists(st.sampled_from(["Mill", "Pier", "Old", "the", "mill", "by", ".", "Mill's"]), min_size=1, max_size=6)


@given(name=words, near=words, said=words)
def test_filled_in_again_it_is_what_it_was(name: list[str], near: list[str], said: list[str]) -> None:
    record = f"name[{' '.join(name)}], food[Thai], near[{' '.join(near)}]"
    sentence = " ".join([*said, *name, "and", *near, *said])
    opened_record, opened_sentence, *values = opened(record, sentence)
    known = dict(zip(("name", "near"), values, strict=True))
    assert filled(opened_record, known) == record
    assert filled(opened_sentence, known) == sentence
