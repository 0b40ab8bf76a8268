"""Selection: the trie-constrained beam ranks R as scoring every reply would, and priors are weighed as they should."""

from __future__ import annotations

from math import log

import pytest

from replying import replying
from seqloom.reply.bundle import load
from seqloom.reply.replier import Replier
from seqloom.reply.responses import Response, ResponseSet
from seqloom.reply.selection import Ranked, Selection, tuned

TEXTS = ["are you coming to the party tonight ?", "thank you for the report ?", "bananas <rare>", "hello"]


@pytest.fixture(scope="module")
def replier() -> Replier:
    return load(replying(), device="cpu", threads=1)


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_a_beam_as_wide_as_the_set_ranks_all_of_it(replier: Replier, weight: float) -> None:
    """Replies of one and of several tokens, some of them beginnings of others."""
    more = [
        Response(text, 1, intent=text) for text in ("not", "it", "it was", "no problem hi", "im sorry thats too bad")
    ]
    responses = ResponseSet([*replier.responses, *more])
    settings = Selection.Settings(beam=len(responses), weight=weight)
    selection = Selection(replier.selection.model, responses, settings)
    for text, found in zip(TEXTS, selection.rank(TEXTS), strict=True):
        exhaustive = selection.all_ranked(text)
        assert [one.response for one in found] == [one.response for one in exhaustive]
        assert len(found) == len(responses)
        for one, other in zip(found, exhaustive, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
            assert one.score == pytest.approx(one.log_prob - weight * responses.prior(one.response), abs=1e-9)


def test_a_narrow_beam_gives_a_few_with_their_own_scores(replier: Replier) -> None:
    narrow = Selection(replier.selection.model, replier.responses, Selection.Settings(beam=4))
    wide = Selection(replier.selection.model, replier.responses, Selection.Settings(beam=100))
    for few, all_ in zip(narrow.rank(TEXTS), wide.rank(TEXTS), strict=True):
        assert len(few) == 4
        scores = {one.response: one.score for one in all_}
        assert [one.score for one in few] == pytest.approx([scores[one.response] for one in few], abs=1e-4)
        assert [one.score for one in few] == sorted((one.score for one in few), reverse=True)


def test_only_replies_of_the_language_and_polarity_asked_for(replier: Replier) -> None:
    spanish = [Response("hey yes", 4, "positive", "hola", "es"), Response("hey no", 4, "negative", "no", "es")]
    selection = Selection(replier.selection.model, ResponseSet([*replier.responses, *spanish]), Selection.Settings())
    assert {one.response.reply for one in selection.rank(["hello"], "es")[0]} == {"hey yes", "hey no"}
    assert [one.response.reply for one in selection.rank(["hello"], "es", "negative")[0]] == ["hey no"]
    assert selection.rank(["hello"], "pt") == [[]]
    assert not {"hey yes", "hey no"} & {one.response.reply for one in selection.rank(["hello"], "en")[0]}


def test_the_largest_weight_that_costs_nothing() -> None:
    often, seldom = Response("yes", 98, intent="yes"), Response("at noon", 0, intent="noon")
    both = ResponseSet([often, seldom])

    def ranked(first: float, second: float) -> list[Ranked]:
        pairs = ((often, log(first)), (seldom, log(second)))
        return [Ranked(one, value, both.prior(one), value) for one, value in pairs]

    always = [ranked(0.9, 0.1)] * 20
    assert tuned(always, [often] * 20).weight == pytest.approx(0.45), "until the rare reply would come first"
    assert tuned(always, [seldom] * 20).weight == 0.5
    assert tuned(always, [seldom] * 20).tried[0.0] == 0.5
    assert tuned([], []).weight == 0.0
