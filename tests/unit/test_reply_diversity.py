"""Three suggestions: of different intents, all of R, and a way to say no where one says yes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from seqloom.reply.diversity import OPPOSITES, chosen
from seqloom.reply.responses import POLARITIES, Polarity, Response


@dataclass(frozen=True)
class One:
    response: Response


def ranked(*meanings: str) -> list[One]:
    """`yes+` is a positive reply of the intent yes, `no-` a negative one, `what` a neutral one."""
    signs: dict[str, Polarity] = {"+": "positive", "-": "negative"}
    return [
        One(Response(f"reply {place}", 1, signs.get(word[-1], "neutral"), word.strip("+-")))
        for place, word in enumerate(meanings)
    ]


def shown(*meanings: str) -> list[str]:
    return [one.response.reply.removeprefix("reply ") for one in chosen(ranked(*meanings))]


def test_the_best_of_each_intent() -> None:
    assert shown("a", "a", "b", "b", "c", "d") == ["0", "2", "4"]
    assert shown("a", "a") == ["0"]
    assert shown() == []


def test_where_one_says_yes_the_third_says_no() -> None:
    assert shown("yes+", "what", "why", "no-") == ["0", "1", "3"]
    assert shown("what", "yes+", "why", "fine+", "no-") == ["0", "1", "4"]


def test_the_mirror_rule() -> None:
    assert shown("no-", "what", "why", "yes+") == ["0", "1", "3"]


def test_the_rule_leaves_alone_what_it_is_not_about() -> None:
    assert shown("yes+", "no-", "why", "bad-") == ["0", "1", "2"]
    assert shown("a", "b", "yes+", "no-") == ["0", "1", "2"], "only the first two ask for the other side"
    assert shown("yes+", "b", "c") == ["0", "1", "2"], "there is no reply that says no"
    assert shown("yes+", "b", "c", "b-") == ["0", "1", "2"], "the only one that says no has an intent that is shown"


def test_a_second_search_is_asked_where_the_ranking_has_none() -> None:
    asked: list[Polarity] = []

    def others(polarity: Polarity) -> list[One]:
        asked.append(polarity)
        return [One(Response("no way", 1, polarity, "no")), One(Response("never", 1, polarity, "never"))]

    found = chosen(ranked("yes+", "no", "why"), others)
    assert [one.response.reply for one in found] == ["reply 0", "reply 1", "never"], "the intent `no` is taken"
    assert asked == ["negative"]


MEANINGS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(POLARITIES)), max_size=15)


@given(MEANINGS, MEANINGS, st.integers(1, 5))
def test_laws(first: list[tuple[str, Polarity]], second: list[tuple[str, Polarity]], count: int) -> None:
    made = [One(Response(f"reply {i}", 1, sign, intent)) for i, (intent, sign) in enumerate([*first, *second])]
    given_, rest = made[: len(first)], made[len(first) :]
    found = chosen(given_, lambda polarity: [one for one in rest if one.response.polarity == polarity], count)
    intents = [one.response.intent for one in found]
    assert len(set(intents)) == len(intents), "never two of one intent"
    assert all(one in made for one in found), "every suggestion is in R"
    assert len(found) == min(count, len({intent for intent, _ in first}))
    signs = [one.response.polarity for one in found]
    taken = set(intents[:-1])
    for sign, opposite in OPPOSITES.items():
        could = any(one.response.polarity == opposite and one.response.intent not in taken for one in made)
        if count == len(found) == 3 and sign in signs[:2] and opposite not in signs[:2] and could:
            assert signs[2] == opposite, "where one side is said and the other can be, it is"
