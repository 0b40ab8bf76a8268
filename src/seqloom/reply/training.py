"""`seqloom reply train`: from mails or a chat to a folder that suggests.

Step by step: read exchanges, prepare them, hold conversations out, mine R from the replies of the rest, train the
encoder-decoder by its recipe (`seqloom.train`, nothing of its own), fit the trigger, choose the weight of log P(r) on
dev, and write the bundle. A run that was interrupted goes on where its training stopped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from seqloom.api.demo import quoted
from seqloom.api.load import load as load_model
from seqloom.api.train import Wishes as TrainingWishes
from seqloom.api.train import train as train_model
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, file_error
from seqloom.reply import bundle
from seqloom.reply.conversations import Exchange, Part, part_of
from seqloom.reply.intents import Seeds, described
from seqloom.reply.lists import Lists
from seqloom.reply.messages import Message
from seqloom.reply.ownwords import own_words
from seqloom.reply.prepare import RARE, SPECIALS, Preprocess, known_words
from seqloom.reply.recipe import RECIPE
from seqloom.reply.responses import Blocked, Mining, Response, ResponseSet, Sent, canonical, mine
from seqloom.reply.selection import MOST_TUNED, Selection, Tuned, tuned
from seqloom.reply.settings import ReplySettings
from seqloom.reply.trigger import Trigger

HELD_OUT = "held-out.jsonl"  # test exchanges, as they were written
MOST: dict[Part, int] = {
    "train": 50_000,
    "test": 20_000,
}  # messages of a fair sample: for words and the trigger, to judge
MOST_TRIGGERS = 20_000  # of these, how many the trigger learns from
PARTS: tuple[Part, ...] = ("train", "dev", "test")
FEWEST_RESPONSES = 2


@dataclass(frozen=True)
class Case:
    """An exchange made ready: what the model reads, and what was answered in the person's own words."""

    part: Part
    text: str
    language: str | None
    reply: str | None
    author: str | None
    message: Message
    drawn: bool  # it belongs to a fair sample of all exchanges


@dataclass
class Wishes:
    """How to train, besides the settings."""

    responses: Path | None = None  # a response set to use instead of mining one
    assignments: Sequence[str] = ()  # `key=value` over the recipe
    training: TrainingWishes = field(default_factory=TrainingWishes)

    @property
    def tell(self) -> Callable[[str], None]:
        return self.training.tell


@dataclass(frozen=True)
class Trained:
    """A run folder, and why its training ended."""

    folder: Path
    reason: str | None
    about: Mapping[str, Plain] = field(default_factory=dict)


def train(
    exchanges: Sequence[Exchange], run: Path, settings: ReplySettings | None = None, wishes: Wishes | None = None
) -> Trained:
    """Learn to suggest from exchanges, in a run folder."""
    settings, wishes = settings or ReplySettings(), wishes or Wishes()
    cases, passed = prepared(exchanges, settings, wishes.tell)
    words = known_words((case.text for case in cases if case.part == "train"), settings.min_count)
    cases = [replace(case, text=without_rare(case.text, words)) for case in cases]
    responses, fates = _responses(cases, settings, wishes)
    wishes.tell(f"{len(responses):,} replies may be suggested, of {len({one.intent for one in responses}):,} intents")
    counts = _write_data(run, cases, responses)
    wishes.tell(
        f"{counts['train']:,} pairs to learn from, {counts['dev']:,} to choose by, {counts['test']:,} to judge by"
    )
    wishes.tell("learning when a short reply is wanted")
    trigger = _trigger(cases, responses, settings)  # before the long training: it may find too little to learn from
    trained = train_model(run / "recipe.yaml", run=run / "model", settings=wishes.assignments, wishes=wishes.training)
    if trained.reason in ("interrupted", "preempted"):
        return Trained(run, trained.reason)
    weight = _weight(trained.folder, cases, responses, settings)
    wishes.tell(f"weight of log P(r): {weight.weight:g}")
    settings = settings.with_(selection=settings.selection.with_(weight=weight.weight))
    about: dict[str, Plain] = {
        "exchanges": len(exchanges),
        "passed_over": dict(passed),
        "replies": dict(fates),
        "responses": len(responses),
        "pairs": dict(counts),
        "tuning": {f"{tried:g}": value for tried, value in weight.tried.items()},
    }
    bundle.save(run / bundle.FOLDER, trained.bundle, trigger, (responses, settings), words, about)
    return Trained(run, trained.reason, about)


# --- data ------------------------------------------------------------------------------------------------------------


def prepared(
    exchanges: Sequence[Exchange], settings: ReplySettings, tell: Callable[[str], None] = lambda line: None
) -> tuple[list[Case], Counter[str]]:
    """Exchanges that a model can read, and why the others cannot be used.

    All whose reply may become part of R are prepared, and of the rest as many as the trigger and the test need: most
    replies of a large mailbox are long, and preparing takes time.
    """
    preprocess, split = Preprocess(settings.prepare), settings.split
    replies = [None if one.reply is None else own_words(one.reply, preprocess) for one in exchanges]
    parts = [part_of(one.conversation, split.seed, split.dev, split.test) for one in exchanges]
    counts = Counter(canonical(reply) for reply in replies if reply is not None)
    drawn = _drawn(parts)
    cases, passed = [], Counter[str]()
    tell(f"preparing {len(exchanges):,} messages")
    for place, (one, reply, part) in enumerate(zip(exchanges, replies, parts, strict=True)):
        short = reply is not None and counts[canonical(reply)] >= settings.responses.min_count
        if place not in drawn and (not short or part == "test"):
            continue
        ready = preprocess(one.message)
        if ready.reason is not None:
            passed[ready.reason.partition(":")[0]] += 1
            continue
        author = None if one.reply is None else one.reply.author
        cases.append(Case(part, ready.text, ready.language, reply, author, one.message, place in drawn))
    return cases, passed


def without_rare(text: str, words: Collection[str]) -> str:
    """The same text with rare words as what a message will have in their place."""
    return " ".join(token if token in words or token in SPECIALS else RARE for token in text.split())


def _drawn(parts: Sequence[Part]) -> set[int]:
    """Places of a fair sample of every part, whatever was answered."""
    found: set[int] = set()
    for part, most in MOST.items():
        places = [place for place, one in enumerate(parts) if one == part]
        found.update(Random(1).sample(places, min(most, len(places))))
    return found


def _responses(cases: Sequence[Case], settings: ReplySettings, wishes: Wishes) -> tuple[ResponseSet, Mapping[str, int]]:
    """R: a person's own, or what is mined from the training conversations."""
    if wishes.responses is not None:
        return ResponseSet.load(wishes.responses), {}
    folder = None if settings.prepare.lists is None else Path(settings.prepare.lists)
    lists = Lists(folder)
    blocked = Blocked(lists.everywhere("blocked"))
    sent = (
        Sent(case.reply, case.author, case.language)
        for case in cases
        if case.reply is not None and case.part == "train"
    )
    mined = mine(sent, settings.responses, blocked)
    if not mined.responses:
        raise _nothing(mined.fates, settings.responses)
    found: list[Response] = []
    for language in sorted({one.language for one in mined.responses}):
        some = [one for one in mined.responses if one.language == language]
        found += described(some, Seeds.load(language, lists))
    return ResponseSet(found), mined.fates


def _nothing(fates: Mapping[str, int], settings: Mining) -> SeqloomError:
    told = ", ".join(f"{count:,} {fate}" for fate, count in fates.items()) or "there are none"
    fix = f"more data, or fewer than responses.min_count {settings.min_count}, min_authors {settings.min_authors}"
    return SeqloomError("E_EMPTY", f"no reply is left that may be suggested; replies: {told}", fix=fix)


def _write_data(run: Path, cases: Sequence[Case], responses: ResponseSet) -> Counter[str]:
    """The pairs of the recipe, the recipe itself where there is none yet, and what is held out."""
    data = run / "data"
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, data, "make the folder") from None
    known = [(case, found) for case in cases if (found := true_response(case, responses)) is not None]
    pairs = {part: [(case.text, found.key) for case, found in known if case.part == part] for part in PARTS}
    sent = Counter(key for _, key in pairs["train"])
    if len(sent) < FEWEST_RESPONSES or not pairs["dev"] or not pairs["test"]:
        counts = ", ".join(f"{len(some):,} in {part}" for part, some in pairs.items())
        what = f"too few messages have a reply that may be suggested: {counts}"
        raise SeqloomError("E_EMPTY", what, fix="more conversations, or larger split.dev and split.test")
    pairs["train"] += [(RARE, one.key) for one in responses if not sent[one.key]]  # so that the model has its words
    for part, some in pairs.items():
        atomic_write(data / f"{part}.tsv", "".join(f"{text}\t{key}\n" for text, key in some).encode("utf-8"))
    test = [case for case in cases if case.part == "test"]
    atomic_write(data / HELD_OUT, "".join(map(_line, test)).encode("utf-8"))
    if not (run / "recipe.yaml").exists():
        text = RECIPE
        for part in PARTS:
            text = text.replace(f"{{{part}}}", quoted(data / f"{part}.tsv"))
        atomic_write(run / "recipe.yaml", text.encode("utf-8"))
    return Counter({part: len(some) for part, some in pairs.items()})


def true_response(case: Case, responses: ResponseSet) -> Response | None:
    """The response that the true reply is; None where R does not hold it."""
    return None if case.reply is None else responses.find(case.reply, case.language)


def _line(case: Case) -> str:
    message = case.message
    record = {"subject": message.subject, "body": message.body, "language": message.language, "reply": case.reply}
    return json.dumps(record, ensure_ascii=False) + "\n"


# --- what is learned besides the model -------------------------------------------------------------------------------


def _trigger(cases: Iterable[Case], responses: ResponseSet, settings: ReplySettings) -> Trigger:
    """A message wants a short reply where it got one that R holds."""
    some = [case for case in cases if case.part == "train" and case.drawn][:MOST_TRIGGERS]
    wanted = [true_response(case, responses) is not None for case in some]
    return Trigger.fit([case.text for case in some], wanted, settings.trigger, settings.split.seed)


def _weight(folder: Path, cases: Sequence[Case], responses: ResponseSet, settings: ReplySettings) -> Tuned:
    """The weight of log P(r), on dev."""
    selection = Selection(load_model(folder), responses, settings.selection)
    dev = [(case, found) for case in cases if case.part == "dev" and (found := true_response(case, responses))]
    dev = dev[:MOST_TUNED]
    by_language: dict[str | None, list[tuple[str, Response]]] = {}
    for case, found in dev:
        by_language.setdefault(case.language, []).append((case.text, found))
    ranked, truths = [], []
    for language, some in by_language.items():
        ranked += selection.rank([text for text, _ in some], language)
        truths += [found for _, found in some]
    return tuned(ranked, truths)
