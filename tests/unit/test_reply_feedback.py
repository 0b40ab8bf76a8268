"""A feedback log and what it says, by arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqloom.errors import SeqloomError
from seqloom.reply.feedback import Event, append, curve, read, usage

SHOWN = ("Yes", "No", "Maybe")


def test_the_measures_of_the_lectures(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    events = [
        Event(shown=SHOWN, chosen="Yes", sent="Yes", probability=0.9),
        Event(shown=SHOWN, chosen="No", sent="No, sorry", probability=0.8),
        Event(shown=SHOWN, sent="I would rather stay at home", probability=0.7),
        Event(shown=SHOWN, probability=0.6),
        Event(sent="Dear all, here is a long answer", probability=0.1),
    ]
    for event in events:
        append(log, event)
    assert [json.loads(line)["outcome"] for line in log.read_text().splitlines()] == [
        "unchanged",
        "edited",
        "ignored",
        "ignored",
        "not shown",
    ]
    found = usage(read(log))
    assert (found.messages, found.shown, found.replies) == (5, 4, 4)
    assert (found.selected, found.unchanged, found.edited, found.ignored) == (0.5, 0.25, 0.25, 0.5)
    assert found.share_of_replies == 0.5
    assert [(point.coverage, point.precision) for point in found.curve] == [
        (0.2, 1),
        (0.4, 1),
        (0.6, 2 / 3),
        (0.8, 0.5),
    ]
    assert all(json.loads(line)["at"] for line in log.read_text().splitlines())


def test_the_log_is_its_owners_and_holds_no_message(tmp_path: Path) -> None:
    append(tmp_path / "log", Event(shown=SHOWN))
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    assert set(json.loads((tmp_path / "log").read_text())) == {
        "at",
        "shown",
        "chosen",
        "sent",
        "probability",
        "outcome",
    }


def test_a_curve_is_thinned_and_keeps_its_end() -> None:
    found = curve([(place / 1000, place % 2 == 0) for place in range(1000)], 2000)
    assert len(found) <= 50
    assert (found[-1].threshold, found[-1].coverage, found[-1].precision) == (0.0, 0.5, 0.5)
    assert curve([], 10) == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"shown": ["a"], "chosen": "b"}', "'b' was not shown"),
        ('{"shown": "a"}', "shown"),
        ('{"show": []}', "unknown key 'show'"),
        ("nonsense", "not valid JSON"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "log").write_text(f"{{}}\n{line}\n")
    with pytest.raises(SeqloomError) as refused:
        read(tmp_path / "log")
    assert refused.value.code == "E_DATA"
    assert "log:2" in refused.value.line
    assert words in refused.value.line


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n")
    with pytest.raises(SeqloomError, match="the log is empty"):
        read(tmp_path / "log")
