"""The response set: what becomes part of it, what never does, and a file that a person may have edited."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.reply.intents import Seeds, described, polarity, spread
from seqloom.reply.lists import Lists
from seqloom.reply.responses import Blocked, Mining, Response, ResponseSet, Sent, canonical, mine

HEAD = "reply\tcount\tpolarity\tintent\tlanguage\n"


@pytest.mark.parametrize(
    ("reply", "key"),
    [
        ("That's  cool!!", "thats cool"),
        ("THATS COOL", "thats cool"),
        ("hahahaha", "haha"),
        ("Ahahah", "haha"),
        ("jajajaja", "jaja"),
        ("Sííí", "sii"),
        ("Não", "nao"),
        ("hmmmm...", "hmm"),
        ("  ", ""),
        (":)", ":)"),
        ("हिंदी", "हिंदी"),
    ],
)
def test_one_form_for_what_says_the_same(reply: str, key: str) -> None:
    assert canonical(reply) == key


@given(st.text(max_size=60))
def test_a_canonical_form_is_its_own(reply: str) -> None:
    key = canonical(reply)
    assert canonical(key) == key
    assert "\t" not in key
    assert "\n" not in key


def sent(text: str, *authors: str | None) -> list[Sent]:
    return [Sent(text, author, "en") for author in authors]


def test_a_reply_of_one_person_stays_private() -> None:
    replies = [*sent("Yes!", *"abc"), *sent("see you at the old mill", *"aaaaaa"), *sent("No", *"ab", None)]
    found = mine(replies, Mining(min_count=3, min_authors=3), Blocked())
    assert [(one.reply, one.count, one.language) for one in found.responses] == [("No", 3, "en"), ("Yes!", 3, "en")]
    assert found.fates["few authors"] == 6


def test_long_rare_private_and_blocked_replies_are_left_out() -> None:
    replies = [
        *sent("one two three four", *"abc"),
        *sent("ok", *"ab"),
        *sent("me@here.org", *"abc"),
        *sent("call 5551234", *"abc"),
        *sent("I love you", *"abc"),
        *sent("kiss", *"abc"),
        *sent("kiss it", *"abc"),
    ]
    found = mine(replies, Mining(max_words=3), Blocked(["# a remark", "love you", "= kiss"]))
    assert [one.reply for one in found.responses] == ["Kiss it"]
    assert found.fates == {"long": 3, "rare": 2, "private": 6, "blocked": 6, "kept": 3}


def test_a_phrase_is_blocked_by_words_not_by_letters() -> None:
    blocked = Blocked(["ass", "love you"])
    assert [blocked(key) for key in ("kick ass", "class", "i love you", "love")] == [True, False, True, False]


def test_the_most_frequent_form_is_shown_and_the_size_is_kept() -> None:
    replies = [*sent("thats cool", *"ab"), *sent("that's cool!", *"abcd"), *sent("ok", *"abc")]
    found = mine(replies, Mining(size=1), Blocked())
    assert found.responses == (Response("That's cool!", 6, language="en"),)
    assert found.fates["over the size"] == 3


def test_the_shipped_lists_can_be_read() -> None:
    for language in ("en", "pt", "es"):
        seeds = Seeds.load(language)
        assert len(set(seeds.intents.values())) > 25
        assert set(seeds.polarity.values()) == {"positive", "negative", "neutral"}
    assert Seeds.load("xx") == Seeds({}, {})


@pytest.mark.parametrize(
    ("language", "reply", "sign"),
    [
        ("en", "No problem!", "positive"),
        ("en", "No", "negative"),
        ("en", "I don't know", "neutral"),
        ("en", "I don't think so", "negative"),
        ("en", "Sounds good", "positive"),
        ("pt", "Não posso", "negative"),
        ("pt", "Sem problemas", "positive"),
        ("pt", "Não sei", "neutral"),
        ("es", "Claro que sí", "positive"),
        ("es", "No puedo", "negative"),
        ("es", "No sé", "neutral"),
    ],
)
def test_the_longest_phrase_says_yes_or_no(language: str, reply: str, sign: str) -> None:
    assert polarity(canonical(reply), Seeds.load(language).polarity) == sign


def test_intents_spread_from_seeds_over_shared_words() -> None:
    keys = ["thank you", "yes", "no", "thank you so much", "yes i do", "thank you all", "bananas"]
    found = spread(keys, {"thank you": "thanks", "yes": "yes", "no": "no"})
    assert found == ["thanks", "yes", "no", "thanks", "yes", "thanks", "bananas"]


def test_without_seeds_replies_gather_around_the_most_frequent() -> None:
    found = spread(["sounds good", "oh dear", "that sounds good", "sounds good to me"], {})
    assert found[0] == found[2] == found[3] == "sounds good"
    assert found[1] == "oh dear"


def test_own_lists_have_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "intents.txt").write_text("fruit\tbananas\n")
    seeds = Seeds.load("en", Lists(tmp_path))
    assert seeds.intents == {"bananas": "fruit"}
    assert described([Response("Bananas!")], seeds)[0].intent == "fruit"
    (tmp_path / "en" / "intents.txt").write_text("fruit bananas\n")
    with pytest.raises(SeqloomError, match="not two columns"):
        Seeds.load("en", Lists(tmp_path))
    (tmp_path / "en" / "polarity.txt").write_text("positiv\tyes\n")
    (tmp_path / "en" / "intents.txt").write_text("a\tb\n")
    with pytest.raises(SeqloomError, match=r'did you mean "positive"'):
        Seeds.load("en", Lists(tmp_path))


# --- the file --------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    some = ResponseSet([Response("Sí, claro", 3, "positive", "yes", "es"), Response("No", 7, "negative", "no", "en")])
    some.save(tmp_path / "r.tsv")
    assert ResponseSet.load(tmp_path / "r.tsv").responses == some.responses
    assert some.find("SI CLARO!", "es") == some.responses[1]
    assert some.find("no", "es") is None
    assert [one.reply for one in some.of("en")] == ["No"]


def test_a_person_may_add_a_line_without_a_language(tmp_path: Path) -> None:
    path = tmp_path / "r.tsv"
    path.write_text(f"{HEAD}# mine\r\n\nOn it!\t0\tpositive\twill look\r\nYes\t5\tpositive\tyes\ten\n")
    found = ResponseSet.load(path)
    assert [one.reply for one in found] == ["Yes", "On it!"]
    assert found.find("on it", "pt") == Response("On it!", 0, "positive", "will look")


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ("Yes\t5\tpositive\tyes\ten\n", "E_DATA", "r.tsv:1"),
        (f"{HEAD}Yes\t5\tpositive\n", "E_DATA", "r.tsv:2"),
        (f"{HEAD}Yes\tmany\tpositive\tyes\ten\n", "E_DATA", "how often it was sent"),
        (f"{HEAD}Yes\t5\tpositiv\tyes\ten\n", "E_DATA", 'did you mean "positive"'),
        (f"{HEAD}Yes\t5\tpositive\t\ten\n", "E_DATA", "no intent"),
        (f"{HEAD} \t5\tpositive\tyes\ten\n", "E_DATA", "an empty reply"),
        (f"{HEAD}{'a' * 201}\t5\tpositive\tyes\ten\n", "E_DATA", "201 characters"),
        (f"{HEAD}Yes\t5\tpositive\tyes\ten\nyes!\t1\tpositive\tyes\ten\n", "E_DATA", "says the same as line 2"),
        (HEAD, "E_EMPTY", "the response set is empty"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, lines: str, code: str, words: str) -> None:
    path = tmp_path / "r.tsv"
    path.write_text(lines)
    with pytest.raises(SeqloomError) as refused:
        ResponseSet.load(path)
    assert refused.value.code == code
    assert words in refused.value.line


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_bytes(HEAD.encode() + b"\xff\xfe")
    with pytest.raises(SeqloomError, match="E_UTF8"):
        ResponseSet.load(tmp_path / "r.tsv")
    with pytest.raises(SeqloomError, match="E_FILE"):
        ResponseSet.load(tmp_path / "other.tsv")


def test_priors_are_probabilities() -> None:
    from math import exp

    some = ResponseSet([Response("a", 8, intent="a"), Response("b", 0, intent="b")])
    assert [round(exp(some.prior(one)), 6) for one in some] == [0.9, 0.1]
