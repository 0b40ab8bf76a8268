"""`seqloom evaluate --diagnose`: a person asks why outputs are wrong, of a model that learned its task."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import tiny
from commands import Command
from seqloom.api.diagnose import diagnose
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.options import Options
from seqloom.api.testset import held_out
from seqloom.data.examples import Example

pytest_plugins = ["command_fixtures"]


@pytest.fixture(scope="module")
def hasty(tiny_recipe: Path, tiny_run: Path) -> Path:
    """A run of the same recipe that stopped early, and errs often."""
    from seqloom.api.train import train

    return train(tiny_recipe, tiny_recipe.parent / "hasty", ["training.epochs=1"]).folder


def spoilt(count: int) -> list[tuple[Example, int, str]]:
    """Sentences backwards with one wrong word at a known place: (example, place, wrong word)."""
    rng, found = Random(5), []
    for line in range(1, count + 1):
        source = rng.sample(tiny.WORDS[:6], rng.randint(2, 3))
        target = source[::-1]
        place = rng.randrange(len(target))
        wrong = rng.choice([word for word in tiny.WORDS if word not in source])
        text = " ".join([*target[:place], wrong, *target[place + 1 :]])
        found.append((Example(" ".join(source), (text,), "spoilt", line), place, wrong))
    return found


def test_wrong_references_are_model_errors_at_the_wrong_word(tiny_run: Path) -> None:
    """A model that knows its task disagrees exactly where the reference was spoilt, and looked at the right word."""
    model = load(tiny_run)
    cases = spoilt(40)
    good = {
        example.source for example, _, _ in cases if model(example.source).text.split() == example.source.split()[::-1]
    }
    assert len(good) > 20, "the fixture learns its task"
    looked = 0
    for found, (example, place, wrong) in zip(diagnose(model, [case[0] for case in cases]), cases, strict=True):
        if example.source not in good:
            continue
        assert found.verdict == "model error", found.line
        part = found.divergence
        assert part is not None
        said = example.source.split()[::-1][place]
        assert (part.place, part.right, part.said) == (place, wrong, said), found.line
        assert part.rank is not None
        assert part.rank > 1
        assert part.probability is not None
        assert part.said_probability is not None
        assert part.probability < part.said_probability
        assert part.gaze is not None
        looked += part.gaze.most == said
    assert looked > 0.8 * len(good), "its attention lies on the word that it says"


@pytest.mark.parametrize("wishes", [{"strategy": "greedy"}, {"beam": 1}, {"beam": 5}])
def test_verdicts_are_those_of_scores_that_are_summed_elsewhere(hasty: Path, wishes: dict[str, object]) -> None:
    """Greedy search compares log P, a beam the mean of its tokens; `Model.score` knows nothing of search."""
    model = load(hasty)
    examples = held_out(model.recipe)[:80]
    found = list(diagnose(model, examples, Options.model_validate({**wishes, "on_long": "skip"})))
    verdicts = set()
    for item, example in zip(found, examples, strict=True):
        if item.verdict == "right":
            assert item.output == example.target
            continue
        scored = model.score([(example.source, text) for text in (item.output, example.target)])
        divisors = [1 if "strategy" in wishes else max(1, len(one.tokens) - 1) for one in scored]
        own, wanted = (one.log_prob / divisor for one, divisor in zip(scored, divisors, strict=True))
        assert item.verdict == ("search error" if wanted > own + 1e-4 else "model error"), item.line
        verdicts.add(item.verdict)
    assert "model error" in verdicts


def test_the_report_counts_errors_and_shows_the_worst(seqloom: Command, hasty: Path) -> None:
    said = seqloom("evaluate", hasty, "--greedy", "--diagnose", "--no-report")
    assert said.code == 0, said
    assert said.err == ""
    for text in ("Diagnosis", "model error", "search error", "Symptoms", "share of the errors", "did not end"):
        assert text in said.out
    assert "the right token has rank" in said.out
    lines = said.out.split("The worst by exact match:\n")[1].splitlines()
    worst, texts = lines[::2], lines[1::2]
    assert len(worst) == len(texts) == 10
    assert all(" -> " in line and "   (wanted: " in line for line in texts)
    assert all("exact match 0.0  " in line for line in worst)
    assert all(" error: " in line and "the reference" in line for line in worst)

    report = json.loads(seqloom("evaluate", hasty, "--greedy", "--diagnose", "--json").out)
    diagnosis = report["diagnosis"]
    counts = {row["verdict"]: row["count"] for row in diagnosis["verdicts"]}
    assert sum(counts.values()) == report["sentences"] == diagnosis["examples"]
    exact = next(score["value"] for score in report["scores"] if score["metric"] == "exact")
    assert counts["right"] == pytest.approx(exact / 100 * report["sentences"])
    assert diagnosis["errors"] == report["sentences"] - counts["right"]
    assert len(diagnosis["worst"]) == 10
    assert diagnosis["worst"][0]["line"] in "\n".join(worst)
    wider = json.loads(seqloom("evaluate", hasty, "--search", "beam=1,beam=8", "--diagnose", "--json").out)
    misses = [
        next(row["count"] for row in system["diagnosis"]["verdicts"] if row["verdict"] == "search error")
        for system in (wider, wider["others"][0])
    ]
    assert misses[1] <= misses[0]


def test_python_gives_the_same_table(tiny_run: Path) -> None:
    report = evaluate(tiny_run, diagnosing=True, samples=10)
    assert report.diagnosis is not None
    assert report.diagnosis.verdicts["right"] == round(report["exact"] / 100 * report.sentences)
    assert [item.output for item in report.diagnosis.items] == list(report.outputs)
    assert evaluate(tiny_run, samples=10).diagnosis is None


def test_what_cannot_be_diagnosed_is_said(seqloom: Command, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("cat\n")
    told = seqloom("evaluate", tiny_run, "--outputs", tmp_path / "out", "--diagnose").refused("E_USAGE", 2)
    assert "an output file cannot be diagnosed" in told
    (tmp_path / "odd.tsv").write_text("zebra cat\tcat \x1b[31m zebra\nant. Bee. Cat.\tbee\n" + "ant " * 400 + "\tant\n")
    said = seqloom("evaluate", tiny_run, "--data", tmp_path / "odd.tsv", "--diagnose")
    assert said.code == 0, said
    assert "\x1b[31m" not in said.out.split("The worst")[1]
    assert "which the vocabulary lacks" in said.out
