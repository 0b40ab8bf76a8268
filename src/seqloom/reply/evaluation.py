"""How good suggestions are on conversations that training never saw.

Ranking is judged where the true reply is in R: is it first, among the first three, the first ten, and how far up? The
trigger is judged on all messages, and so is the whole: of the messages that get suggestions, how many were answered by
one of them? A true reply is one of many good ones, so all of these are low and mean something only side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from seqloom.config import Plain
from seqloom.data.files import Tally, decoded, raw_lines
from seqloom.data.records import json_object
from seqloom.errors import SeqloomError
from seqloom.metrics.ranking import CANDIDATES, RecallAt, ReciprocalRank
from seqloom.metrics.significance import Interval, bootstrap
from seqloom.reply.baselines import Neighbours, Pair, by_frequency, generated
from seqloom.reply.conversations import read
from seqloom.reply.feedback import Point, curve, thinned
from seqloom.reply.messages import Message
from seqloom.reply.ownwords import own_words
from seqloom.reply.prepare import RARE
from seqloom.reply.replier import Replier, Suggestions
from seqloom.reply.responses import Response, canonical
from seqloom.reply.training import HELD_OUT
from seqloom.reply.trigger import Curve

PLACES = (1, 3, 10)
MOST_RANKED = 5_000  # messages whose true reply is in R
MOST_JUDGED, MOST_WHOLE = 5_000, 1_500  # of a fair sample: for coverage and the trigger, and for the whole


@dataclass(frozen=True)
class HeldOut:
    """A message and what was answered; None where nobody did."""

    message: Message
    reply: str | None


@dataclass(frozen=True)
class Evaluation:
    """Shares from 0 to 1, except that the scores of rankings are in %."""

    messages: int
    answered: int
    covered: float  # share of the true replies that R holds
    passed_over: Mapping[str, int]  # why messages got no suggestion, before the trigger was asked
    ranked: int  # messages whose true reply is in R
    systems: Mapping[str, Mapping[str, Interval]]  # P@1, P@3, P@10, MRR
    trigger: Curve | None
    threshold: float
    curve: tuple[Point, ...]  # precision (the true reply was among the suggestions) against coverage
    examples: tuple[tuple[Suggestions, str], ...]  # drawn, with the true reply
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Plain]:
        trigger = self.trigger
        return {
            "messages": self.messages,
            "answered": self.answered,
            "covered": self.covered,
            "passed_over": dict(self.passed_over),
            "ranked": self.ranked,
            "systems": {
                name: {metric: {"value": one.value, "low": one.low, "high": one.high} for metric, one in scores.items()}
                for name, scores in self.systems.items()
            },
            "trigger": None
            if trigger is None
            else {
                "auc": trigger.auc,
                "threshold": self.threshold,
                "curve": [
                    {"threshold": one.threshold, "precision": one.precision, "recall": one.recall, "share": one.share}
                    for one in thinned(trigger.points)
                ],
            },
            "curve": [point.as_dict() for point in self.curve],
            "examples": [
                {"message": one.message.body, "suggestions": list(one.texts), "reason": one.reason, "true": true}
                for one, true in self.examples
            ],
            "notes": list(self.notes),
        }


def read_held_out(path: Path) -> list[HeldOut]:
    """Exchanges as `seqloom reply train` held them out."""
    found, tally = [], Tally()
    for line in raw_lines(str(path)):
        text = decoded(line, str(path), "error", tally)
        record = json_object(text or "{}", f"{path}:{line.number}")
        told = {
            key: value for key in ("body", "subject", "language", "reply") if isinstance(value := record.get(key), str)
        }
        message = Message(told.get("body", ""), told.get("subject", ""), language=told.get("language"))
        found.append(HeldOut(message, told.get("reply")))
    return found


def gathered(replier: Replier, run: Path, data: Path | None) -> list[HeldOut]:
    """What to judge by: all exchanges of other data, or those that the run held out."""
    if data is not None:
        return [
            HeldOut(one.message, None if one.reply is None else own_words(one.reply, replier.preprocess))
            for one in read(data)
        ]
    path = run / "data" / HELD_OUT
    if not path.is_file():
        what = "the conversations that were held out are not here"
        raise SeqloomError("E_FILE", what, where=str(path), fix="name the run's folder, or give --data")
    return read_held_out(path)


def training_pairs(run: Path) -> tuple[list[Pair], list[Pair]] | None:
    """The pairs of train and dev, for baselines that learn from them; None where they are not at hand."""
    paths = [run / "data" / f"{part}.tsv" for part in ("train", "dev")]
    if not all(path.is_file() for path in paths):
        return None
    train, dev = ([_pair(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths)
    return train, dev


def _pair(line: str) -> Pair:
    message, _, key = line.partition("\t")
    return message, key


def evaluate(
    replier: Replier,
    held_out: Sequence[HeldOut],
    training: tuple[Sequence[Pair], Sequence[Pair]] | None = None,
    free: bool = True,
) -> Evaluation:
    """Judge a Smart Reply; `training` are the pairs of train and dev, for the neighbours; `free` writes freely too."""
    keys = {one.key for one in replier.responses}
    drawn = set(Random(1).sample(range(len(held_out)), min(MOST_JUDGED, len(held_out))))
    places = [
        place for place, one in enumerate(held_out) if place in drawn or (one.reply and canonical(one.reply) in keys)
    ]
    judged = dict(zip(places, replier.judged([held_out[place].message for place in places]), strict=True))
    known = [
        (one, truth)
        for place, one in judged.items()
        if one.reason is None and (truth := _truth(replier, one, held_out[place].reply)) is not None
    ]
    passed = Counter((judged[place].reason or "").partition(":")[0] for place in drawn if judged[place].reason)
    readable = [(judged[place], held_out[place].reply) for place in sorted(drawn) if judged[place].reason is None]
    truths = [_truth(replier, one, reply) for one, reply in readable]
    answered = [truth for truth, (_, reply) in zip(truths, readable, strict=True) if reply is not None]
    if not answered:
        raise SeqloomError("E_EMPTY", "no held-out message that can be read has a reply", fix="more conversations")
    systems, notes = rankings(replier, known[:MOST_RANKED], training, free)
    texts = [one.prepared.text for one, _ in readable]
    wanted = [truth is not None for truth in truths]
    both = len(set(wanted)) == 2
    whole, points = _whole(replier, readable[:: -(-len(readable) // MOST_WHOLE)])
    return Evaluation(
        messages=len(drawn),
        answered=len(answered),
        covered=sum(truth is not None for truth in answered) / len(answered),
        passed_over=dict(passed),
        ranked=min(len(known), MOST_RANKED),
        systems=systems,
        trigger=replier.trigger.curve(texts, wanted) if both else None,
        threshold=replier.threshold,
        curve=points,
        examples=tuple(whole[:: max(1, len(whole) // 10)][:10]),
        notes=tuple(notes),
    )


def _truth(replier: Replier, one: Suggestions, reply: str | None) -> Response | None:
    """The response that a true reply is."""
    return None if reply is None else replier.responses.find(reply, one.prepared.language)


def rankings(
    replier: Replier,
    known: Sequence[tuple[Suggestions, Response]],
    training: tuple[Sequence[Pair], Sequence[Pair]] | None,
    free: bool,
) -> tuple[dict[str, Mapping[str, Interval]], list[str]]:
    """Every ranking of R for messages whose true reply it holds, with what could not be compared."""
    notes: list[str] = []
    texts, truths = [one.prepared.text for one, _ in known], [truth.key for _, truth in known]
    lists = {"seqloom": ranked_keys(replier, known)}
    lists["frequency"] = [by_frequency(replier.responses, one.prepared.language) for one, _ in known]
    if training is not None:
        try:
            keys = {one.key for one in replier.responses}
            train, dev = ([(text, key) for text, key in some if key in keys and text != RARE] for some in training)
            neighbours = Neighbours(train, dev)
            lists["TF-IDF, nearest message"] = neighbours.nearest(texts)
            lists[f"TF-IDF, {neighbours.k} messages vote"] = neighbours.rank(texts)
        except SeqloomError as error:
            if error.code != "E_EXTRA":
                raise
            notes.append(f"{error.what}: {error.fix}")
    if free:
        lists["free generation"] = generated(replier.selection.model, texts)
    return {name: scored(found, truths) for name, found in lists.items()}, notes


def ranked_keys(replier: Replier, known: Sequence[tuple[Suggestions, Response]]) -> list[list[str]]:
    """Our own ranking, language by language."""
    found: list[list[str]] = [[] for _ in known]
    for language in {one.prepared.language for one, _ in known}:
        places = [place for place, (one, _) in enumerate(known) if one.prepared.language == language]
        ranked = replier.selection.rank([known[place][0].prepared.text for place in places], language)
        for place, some in zip(places, ranked, strict=True):
            found[place] = [one.response.key for one in some]
    return found


def scored(lists: Sequence[Sequence[str]], truths: Sequence[str]) -> dict[str, Interval]:
    """P@k (the true reply is among the first k) and MRR in %, with bootstrap intervals of 95 %."""
    metrics = {f"P@{k}": RecallAt(RecallAt.Settings(k=k)) for k in PLACES}
    every = {**metrics, "MRR": ReciprocalRank(ReciprocalRank.Settings())}
    outputs = [CANDIDATES.join(some) for some in lists]
    references = [[truth] for truth in truths]
    return {name: bootstrap(metric, metric.statistics(outputs, references)) for name, metric in every.items()}


def _whole(
    replier: Replier, readable: Sequence[tuple[Suggestions, str | None]]
) -> tuple[list[tuple[Suggestions, str]], tuple[Point, ...]]:
    """Suggestions for all of them, and precision against coverage by what the trigger says."""
    found = replier.answers([one for one, _ in readable], anyway=True)
    rated, shown = [], []
    for one, (_, reply) in zip(found, readable, strict=True):
        hit = reply is not None and canonical(reply) in {some.response.key for some in one.suggestions}
        if one.probability is not None:
            rated.append((one.probability, hit))
        if reply is not None and one.probability is not None and one.probability >= replier.threshold:
            shown.append((one, reply))
    return shown, curve(rated, len(readable))
