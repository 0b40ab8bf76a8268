"""What tests of Smart Reply share: a small chat of our own, and a run that was trained on it once."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

QUESTIONS = {  # what is asked, and what is answered most of the time
    "are you coming to the {thing} tonight": ("Yes", "Sure", "No", "I can't"),
    "did you finish the {thing}": ("Yes", "Not yet", "Almost", "No"),
    "thank you for the {thing}": ("You're welcome", "No problem", "Anytime"),
    "how was the {thing}": ("Great!", "It was fun", "Not bad"),
    "hello there {thing}": ("Hi!", "Hello", "Hey"),
    "i lost my {thing} yesterday": ("Oh no", "I'm sorry", "That's too bad"),
}
LONG = "well the {thing} is a long story and i will tell you all of it when we meet number {number}"
THINGS = ("party", "report", "game", "dinner", "meeting", "movie", "lecture", "trip", "concert", "letter")
TINY = (
    "training.steps=300",
    "training.schedule.warmup=5",
    "training.epochs=null",
    "training.validate_every=100",
    "batching.tokens=256",
    "task.source_noise.drop=0",
    "model.source_embedding.width=16",
    "model.target_embedding.width=16",
    "model.encoder={kind: bag, width: 32}",
    "model.decoder.width=16",
    "model.decoder.dropout=0",
    "training.optimiser.lr=0.02",
    "runtime.threads=1",
    "runtime.device=cpu",
)


def write_chat(path: Path, talks: int = 150, seed: int = 1) -> Path:
    """Conversations of two people out of twenty; every second exchange wants a short reply."""
    rng = random.Random(seed)
    lines = ["conversation\tauthor\ttext"]
    for talk in range(talks):
        one, other = rng.sample([f"person {number}" for number in range(20)], 2)
        for _ in range(3):
            asked = rng.choice(list(QUESTIONS))
            thing = rng.choice(THINGS)
            lines.append(f"talk {talk}\t{one}\t{asked.format(thing=thing)}?")
            lines.append(f"talk {talk}\t{other}\t{rng.choice(QUESTIONS[asked])}")
            lines.append(f"talk {talk}\t{one}\tplease tell me more about the {rng.choice(THINGS)} and your family")
            lines.append(f"talk {talk}\t{other}\t{LONG.format(thing=thing, number=rng.randrange(10_000))}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@cache
def replying() -> Path:
    """A run of Smart Reply that was trained once in this process: copy it before you change it."""
    from seqloom.reply.conversations import read
    from seqloom.reply.settings import ReplySettings
    from seqloom.reply.training import Wishes, train

    folder = Path(tempfile.mkdtemp(prefix="seqloom-reply-"))
    chosen = {"prepare": {"languages": ["en"], "detect": False}, "trigger": {"epochs": 5}}
    settings = ReplySettings.model_validate(chosen)
    train(read(write_chat(folder / "chat.tsv")), folder / "run", settings, Wishes(assignments=TINY))
    return folder / "run"
