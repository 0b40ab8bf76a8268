"""The first five minutes with labels, tags and plain text: init, check, train, predict, on a file and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commands import Answer, Command

pytest_plugins = ["command_fixtures"]

MOODS = {"glad": ["lovely", "great", "warm", "bright"], "sad": ["dull", "awful", "cold", "grey"]}
TAGS = {
    "the": "DET",
    "a": "DET",
    "is": "VERB",
    "sees": "VERB",
    "cat": "NOUN",
    "dog": "NOUN",
    "old": "ADJ",
    "red": "ADJ",
}
RNG = random.Random(1)


@pytest.fixture
def began(seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Draft a recipe of the data, check both, and train for a little while."""
    monkeypatch.chdir(tmp_path)

    def begin(data: str, steps: int, *settings: str) -> Answer:
        drafted = seqloom("init", data, "-q")
        assert drafted.code == 0, drafted.err
        assert "# Taken for " in Path("recipe.yaml").read_text()
        for checked in (seqloom("check", data), seqloom("check", "recipe.yaml")):
            assert (checked.code, "error:" in checked.out) == (0, False), checked.out
        brief = [f"steps={steps}", f"validate_every={steps}", *settings]
        trained: Answer = seqloom(
            "train", "recipe.yaml", "-q", "--threads", "1", *(word for one in brief for word in ("--set", one))
        )
        assert trained.code == 0, trained.err
        return trained

    return begin


def test_labels(seqloom: Command, began: Command) -> None:
    lines = []
    for number in range(400):
        label = RNG.choice(list(MOODS))
        lines.append(f"day {number} was {RNG.choice(MOODS[label])} and {RNG.choice(MOODS[label])}\t{label}\n")
    Path("days.tsv").write_text("".join(lines))
    began("days.tsv", 60, "lr=0.01")
    Path("new.txt").write_text("day 7 was great and lovely\nday 8 was awful and cold\n")
    assert seqloom("predict", "runs/recipe", "new.txt").out == "glad\nsad\n"
    judged = seqloom("evaluate", "runs/recipe", "--json")
    assert judged.code == 0, judged.err
    Path("days.tsv").write_text("".join(lines) + "day 400 was odd\tglda\n")
    assert "days.tsv:401 (glda)" in seqloom("check", "recipe.yaml").out


def test_tags(seqloom: Command, began: Command) -> None:
    nouns = [f"{a}{b}er" for a in "bdfglmnprst" for b in ("ak", "ind", "ol", "um")]
    sentences = []
    for _ in range(300):
        words = ["the", "old", RNG.choice(nouns), RNG.choice(["sees", "is"]), "a", RNG.choice(["red", "old"]), "dog"]
        sentences.append("".join(f"{word}\t{TAGS.get(word, 'NOUN')}\n" for word in words))
    Path("words.tsv").write_text("\n".join(sentences))
    began("words.tsv", 60, "lr=0.01")
    Path("new.txt").write_text("the red zonter is a old cat\n")
    said = seqloom("predict", "runs/recipe", "new.txt").out.split()
    assert said == ["DET", "ADJ", "NOUN", "VERB", "DET", "ADJ", "NOUN"], "a word never seen ends like others"
    Path("pairs.tsv").write_text("the cat\tDET NOUN\nthe old cat\tDET ADJ\n")
    uneven = seqloom("check", "pairs.tsv", "--task", "tags", "--fail")
    assert "pairs.tsv:2 (3 words, 2 tags)" in uneven.out
    assert "uneven_tags" in uneven.refused("E_DATA", 3)


def test_plain_text(seqloom: Command, began: Command) -> None:
    speeches = [
        f"{RNG.choice('ABC')}:\nThe {RNG.choice(['cat', 'dog'])} is {RNG.choice(['old', 'red'])}.\n" for _ in range(300)
    ]
    Path("play.txt").write_text("\n".join(speeches))
    began("play.txt", 40, "lr=0.01")
    answer = seqloom("predict", "runs/recipe", "--text", "The ")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("The "), "it goes on with what it was given"
    assert "lines in 300 document(s)" in seqloom("check", "play.txt").out
