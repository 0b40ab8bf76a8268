"""Splitting paragraphs: nothing is lost, and the usual traps do not split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.sentences import split_sentences


def sentences(text: str) -> list[str]:
    return [sentence for sentence, _ in split_sentences(text)]


@given(st.text(alphabet=st.sampled_from("ab AB.!?…。」\"'() \t1")))
def test_sentences_and_gaps_joined_give_the_text(text: str) -> None:
    assert "".join(sentence + gap for sentence, gap in split_sentences(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("Really?! Yes.", ["Really?!", "Yes."]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("Dr. Smith met J. R. Doe. They spoke.", ["Dr. Smith met J. R. Doe.", "They spoke."]),
        ("Pi is 3.14 and e.g. this stays.", ["Pi is 3.14 and e.g. this stays."]),
        ("wait... what", ["wait... what"]),
        ("я не знаю. Он знает.", ["я не знаю.", "Он знает."]),
        ("это т. е. так", ["это т. е. так"]),
        ("今日は。明日は？", ["今日は。", "明日は？"]),
        ("It costs 5. 6 is more.", ["It costs 5.", "6 is more."]),
        ("", [""]),
        ("no stop", ["no stop"]),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_gaps_are_kept() -> None:
    assert split_sentences("A b.  C d. ") == [("A b.", "  "), ("C d.", " ")]
