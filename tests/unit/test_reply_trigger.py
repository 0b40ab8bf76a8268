"""The trigger: it learns, holds its threshold's promise, and comes back from disk as it was, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.reply.trigger import CARD, WEIGHTS, Curve, Point, Trigger, _threshold

SMALL = Trigger.Settings(buckets=512, width=8, hidden=8, epochs=6, precision=0.9)


def messages(count: int, seed: int) -> tuple[list[str], list[bool]]:
    """Questions want a reply; of statements one in ten does."""
    random = Random(seed)
    words = ["the", "red", "house", "stands", "near", "a", "small", "green", "lake", "with", "old", "trees"]
    texts, wanted = [], []
    for _ in range(count):
        asked = random.random() < 0.4
        body = " ".join(random.choices(words, k=random.randint(2, 9)))
        texts.append(f"can you {body} ?" if asked else f"{body} .")
        wanted.append(asked or random.random() < 0.1)
    return texts, wanted


@pytest.fixture(scope="module")
def trigger() -> Trigger:
    return Trigger.fit(*messages(3000, 1), SMALL, seed=3)


def test_it_tells_questions_from_statements(trigger: Trigger) -> None:
    asked, said = trigger.probability(["can you stand near the lake ?", "the old trees near a lake ."])
    assert said < trigger.threshold <= asked
    assert trigger.wants("can you stand near the lake ?")
    assert not trigger.wants("the old trees near a lake .")


def test_the_threshold_reaches_the_precision_on_new_messages(trigger: Trigger) -> None:
    texts, wanted = messages(2000, 2)
    chosen = [want for one, want in zip(trigger.probability(texts), wanted, strict=True) if one >= trigger.threshold]
    assert len(chosen) > 200
    assert sum(chosen) / len(chosen) > SMALL.precision - 0.02  # what chance takes on 2,000 messages


def test_the_curve_agrees_with_counting(trigger: Trigger) -> None:
    texts, wanted = messages(60, 4)
    scores = trigger.probability(texts)
    curve = trigger.curve(texts, wanted)
    pairs = [(a > b) + 0.5 * (a == b) for a, x in zip(scores, wanted, strict=True) if x
             for b, y in zip(scores, wanted, strict=True) if not y]  # fmt: skip
    assert curve.auc == pytest.approx(sum(pairs) / len(pairs))
    assert [point.threshold for point in curve.points] == sorted(set(scores), reverse=True)
    for point in curve.points:
        above = [want for one, want in zip(scores, wanted, strict=True) if one >= point.threshold]
        assert point.precision == pytest.approx(sum(above) / len(above))
        assert point.recall == pytest.approx(sum(above) / sum(wanted))
        assert point.share == pytest.approx(len(above) / len(texts))


def test_a_curve_of_one_kind_alone(trigger: Trigger) -> None:
    assert trigger.curve(["a", "b"], [True, True]).auc == 0.5
    assert trigger.curve([], []) == Curve(0.5, ())


def test_the_lowest_threshold_that_is_precise_enough() -> None:
    rows = [(0.9, 1.0), (0.8, 0.5), (0.7, 0.8), (0.6, 0.6)]
    curve = Curve(0.7, tuple(Point(threshold, precision, 0.5, 0.5) for threshold, precision in rows))
    assert _threshold(curve, 0.75, 10_000) == 0.7
    assert _threshold(curve, 0.95, 10_000) == 0.9
    assert _threshold(Curve(0.7, curve.points[1:]), 0.95, 10_000) == 0.7  # none reaches it: the nearest
    assert _threshold(curve, 0.75, 20) == 0.9  # 8 of 10 may be chance


def test_equal_seeds_give_equal_triggers_and_leave_the_global_ones_alone(trigger: Trigger) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again = Trigger.fit(*messages(3000, 1), SMALL, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert again.probability(["can you ?"]) == trigger.probability(["can you ?"])
    assert again.threshold == trigger.threshold


def test_texts_together_equal_texts_alone(trigger: Trigger) -> None:
    texts = messages(50, 6)[0] + ["", "word " * 5000]
    alone = [trigger.probability([text])[0] for text in texts]
    assert trigger.probability(texts) == pytest.approx(alone, abs=1e-6)
    assert trigger.probability([]) == []


def test_round_trip(trigger: Trigger, tmp_path: Path) -> None:
    trigger.save(tmp_path)
    again = Trigger.load(tmp_path)
    texts = messages(20, 7)[0]
    assert again.probability(texts) == trigger.probability(texts)
    assert (again.threshold, again.settings) == (trigger.threshold, trigger.settings)


def test_too_little_to_learn_from() -> None:
    with pytest.raises(SeqloomError, match="0 messages that do not") as refused:
        Trigger.fit(["a ?"] * 100, [True] * 100, SMALL)
    assert refused.value.code == "E_EMPTY"
    with pytest.raises(SeqloomError, match="3 messages and 2 answers"):
        Trigger.fit(["a", "b", "c"], [True, False], SMALL)


@pytest.mark.parametrize("name", [CARD, WEIGHTS])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
def test_damaged_files_are_refused(trigger: Trigger, tmp_path: Path, name: str, damage: str) -> None:
    trigger.save(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": data[:-9], "changed": data[:-9] + b"\x00" + data[-8:]}[damage])
    with pytest.raises(SeqloomError) as refused:
        Trigger.load(tmp_path)
    assert refused.value.code == "E_BUNDLE"
    assert name in refused.value.where


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": 2}, "E_FORMAT"),
        ({"format": "x"}, "E_BUNDLE"),
        ({"threshold": "high"}, "E_BUNDLE"),
        ({"settings": {"width": 9}}, "E_BUNDLE"),
        ({"settings": {"colour": 9}}, "E_BUNDLE"),
        ({"settings": None}, "E_BUNDLE"),
        ({"sha256": "0" * 64}, "E_BUNDLE"),
    ],
)
def test_a_card_of_something_else(trigger: Trigger, tmp_path: Path, change: dict[str, object], code: str) -> None:
    trigger.save(tmp_path)
    card = json.loads((tmp_path / CARD).read_text())
    (tmp_path / CARD).write_text(json.dumps({**card, **change}))
    with pytest.raises(SeqloomError) as refused:
        Trigger.load(tmp_path)
    assert refused.value.code == code
