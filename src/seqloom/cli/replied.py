"""What `seqloom reply` prints for a person: an explanation, an evaluation, what a feedback log says."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli import say
from seqloom.cli.say import percent

if TYPE_CHECKING:
    from seqloom.reply.evaluation import Evaluation
    from seqloom.reply.feedback import Point, Usage
    from seqloom.reply.replier import Suggestions
    from seqloom.reply.responses import Response

POINTS = 6  # of a curve that are printed


def print_explanation(found: Suggestions) -> None:
    """Every step from the message to the suggestions."""
    for step in found.prepared.steps:
        say.data(f"{step.name}: {step.note}" if step.note else step.name)
        for line in step.text.splitlines() or [""]:
            say.data(f"    {line}".rstrip())
    if found.verdict is not None:
        say.data(f"sensitive: {found.verdict.why if found.verdict.sensitive else 'no'}")
    if found.probability is not None:
        say.data(f"a short reply is wanted: {found.probability:.2f} (suggestions from {found.threshold:.2f} on)")
    if found.ranking:
        columns = ("reply", "score", "log P(r|m)", "log P(r)", "intent", "polarity")
        rows = [
            (one.response.reply, f"{one.score:.2f}", f"{one.log_prob:.2f}", f"{one.prior:.2f}", *_meaning(one.response))
            for one in found.ranking
        ]
        say.data("")
        say.table("ranking", columns, rows)
    say.data("")
    if found.reason is not None:
        say.data(f"no suggestion: {found.reason}")
    if found.suggestions:
        would = "" if found.reason is None else " would be"
        say.data(f"suggestions{would}, each of another intent:")
        for one in found.suggestions:
            say.data(f"    {one.response.reply}  ({', '.join(_meaning(one.response))})")


def _meaning(response: Response) -> tuple[str, str]:
    return response.intent, response.polarity


def print_evaluation(found: Evaluation) -> None:
    notes = [
        f"on {found.ranked:,} messages whose true reply is in the response set; 95 % bootstrap intervals",
        f"the response set holds {percent(found.covered)} of {found.answered:,} true replies",
        *found.notes,
    ]
    names = list(next(iter(found.systems.values())))
    rows = [(name, *(str(scores[metric]) for metric in names)) for name, scores in found.systems.items()]
    say.table("where the true reply stands, in %", ("ranking", *names), rows, notes)
    for reason, count in sorted(found.passed_over.items(), key=lambda item: -item[1]):
        say.data(f"{count:,} of {found.messages:,} messages get none: {reason}")
    if found.trigger is not None:
        say.data(f"\ntrigger: AUC {100 * found.trigger.auc:.1f} %, suggestions from {found.threshold:.2f} on")
    _print_curve("the true reply is among the suggestions (precision), by the share that gets any", found.curve)
    for one, true in found.examples:
        said = " ".join(one.prepared.text.split())
        say.data(f"\n  {said[:100]}\n    suggested: {' | '.join(one.texts)}\n    answered:  {true}")


def _print_curve(title: str, points: Sequence[Point]) -> None:
    if not points:
        return
    step = max(1, math.ceil(len(points) / POINTS))
    rows = [
        (f"{one.threshold:.3f}", percent(one.coverage), percent(one.precision)) for one in points[::-1][::step][::-1]
    ]
    say.data("")
    say.table(title, ("threshold", "coverage", "precision"), rows)


def print_usage(found: Usage) -> None:
    """The lectures' measures."""
    rows = [
        ("messages", f"{found.messages:,}"),
        ("with suggestions", f"{found.shown:,} ({percent(found.coverage)})"),
        ("a suggestion was selected", percent(found.selected)),
        ("  and sent unchanged", percent(found.unchanged)),
        ("  and edited first", percent(found.edited)),
        ("ignored", percent(found.ignored)),
        ("share of all replies", f"{percent(found.share_of_replies)} of {found.replies:,}"),
    ]
    say.table("what people did", ("", ""), rows, ["selected, unchanged, edited, ignored: of messages with suggestions"])
    _print_curve("selected (precision), by the share that gets suggestions", found.curve)


# --- the demonstration -----------------------------------------------------------------------------------------------


def run_demo(folder: Path, wishes: Mapping[str, object], replace: bool, as_json: bool) -> None:
    """Get the conversations, train, judge on held-out ones, suggest."""
    from seqloom.cli.reply import learn
    from seqloom.reply import demo
    from seqloom.reply.bundle import load
    from seqloom.reply.conversations import read
    from seqloom.reply.evaluation import evaluate, gathered, training_pairs

    started_at = time.monotonic()
    say.talk(f"{demo.NAME}: {demo.ABOUT}")
    run, chat = folder / "run", demo.write_chat(folder)
    say.talk(f"  the conversations are in {say.shown(chat)}, yours to read and change")
    changed = [f"{key}={value}" for key, value in wishes.items()]
    if "training.steps" in wishes:
        changed.append("training.epochs=null")
    learn(read(chat), run, demo.SETTINGS, None, changed, replace)
    say.talk("judging on held-out conversations ...")
    replier = load(run)
    found = evaluate(replier, gathered(replier, run, None), training_pairs(run))
    own = replier.suggest_all(demo.QUESTIONS, anyway=True)
    if as_json:
        asked = {one.message.body: list(one.texts) for one in own}
        elapsed = round(time.monotonic() - started_at, 1)
        return say.as_json({"demo": demo.NAME, **found.as_dict(), "asked": asked, "elapsed": elapsed})
    say.data("")
    print_evaluation(found)
    for one in own:
        say.data(f"\n  {one.message.body}\n    {' | '.join(one.texts)}")
    place = say.shown(run)
    say.data(f"\nall this in {round(time.monotonic() - started_at)} s; next, type any of these:")
    for line, why in (
        (f"seqloom reply suggest {place} --text 'Do you like dogs?'", "ask it something of your own"),
        (f"seqloom reply explain {place} --text 'Do you like dogs?'", "see every step on the way"),
        (f"seqloom reply evaluate {place}", "judge it again, after you edited responses.tsv or settings.yaml"),
    ):
        say.data(f"  {say.to_type(line)}\n      {why}")
