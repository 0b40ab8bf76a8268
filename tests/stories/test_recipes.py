"""Recipes learn: each new one takes a few steps on a small slice that is written here, in the form that it reads.

The slices hold sentences of our own; the sets themselves are no part of seqloom.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

import seqloom
from seqloom.config import kind_of
from seqloom.data.readers import ReaderSettings
from seqloom.recipe import Recipe, load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
EVERY = sorted(path.stem for path in RECIPES.glob("*.yaml"))
SLICES: dict[str, tuple[str, str]] = {  # an example of each, to be varied by a number
    "summarisation": ("Hi Greta , rope number {0} for the barge came today , but it is thin .", "rope number {0}"),
    "restaurants": ("name[Mill {0}], eatType[pub], near[Pier {0}]", "Mill {0} is a pub near Pier {0} ."),
    "restaurants-delexicalised": ("name[X_name], near[X_near], floor[{0}]", "X_name is near X_near , floor {0} ."),
    "questions-span": ("Old Mill {0} on the Lune has {0} floors .", "Lune"),
    "triples": (
        "Old_Mill_{0} | river | Lune ; Old_Mill_{0} | floors | {0}",
        "Old Mill {0} on the Lune has {0} floors.",
    ),
    "queries": ("who teaches course {0} ?", "SELECT A . NAME FROM A WHERE A . COURSE = {0} ;"),
    "code": ("assign integer {0} to rope_{0}.", "rope_{0} = {0}"),
    "documentation": ("Call :func:`open_{0}` first.", "Appelez d'abord :func:`open_{0}`."),
    "translation-tatoeba": ("Ich sehe {0} Boote.", "I see {0} boats."),
    "translation-japanese": ("i see {0} boats .", "舟 が {0} 艘 見え ます 。"),
    "dialogue": ("Is ferry {0} late ? __eou__ No .", "Then we take ferry {0} ."),
}


def written(settings: ReaderSettings, source: str, target: str, count: int) -> None:
    """A slice in the files that a recipe names, columns where it looks for them."""
    told = settings.model_dump()
    pairs = [(source.format(number), target.format(number)) for number in range(count)]
    if kind_of(settings) == "parallel":
        files = {told["source"]: [one for one, _ in pairs], told["target"]: [one for _, one in pairs]}
    else:
        width = max(*told["columns"], *told["extras"].values()) + 1
        rows = [["x"] * width for _ in pairs]
        for row, pair in zip(rows, pairs, strict=True):
            for column, text in zip(told["columns"], pair, strict=True):
                row[column] = text
        files = {told["path"]: ["\t".join(["name"] * width)] * told["header"] + ["\t".join(row) for row in rows]}
    for name, lines in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


QUICK = (
    "training.steps=3",
    "training.epochs=null",
    "training.validate_every=3",
    "evaluation.validate_examples=2",
    "batching.tokens=256",
    "search.limits.max_length=12",
    "runtime.device=cpu",
    "runtime.threads=1",
)


def learns(name: str, folder: Path) -> None:
    """Three steps, a bundle, and an answer."""
    run = seqloom.train(RECIPES / f"{name}.yaml", run=folder, settings=QUICK)
    assert run.metrics[-1]["step"] == 3
    model = seqloom.load(folder)
    texts = dict.fromkeys(model.recipe.extras, "where is anna ?")
    (answer,) = model.predict([{"source": "anna went to the barn .", **texts} if texts else "anna is in 3 boats ."])
    assert answer.hypotheses


@pytest.mark.parametrize("name", EVERY)
def test_every_recipe_is_one_and_says_where_it_is_from(name: str) -> None:
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    assert isinstance(recipe, Recipe)
    header = [line for line in (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    told = "\n".join(header)
    assert "# Paper" in told
    assert "# Data" in told
    assert f"seqloom train recipes/{name}.yaml" in told
    assert "measured" in told.lower() or (RECIPES / "results" / f"{name}.json").exists(), (
        "its result, or that there is none"
    )


@pytest.mark.story
@pytest.mark.parametrize("name", SLICES)
def test_a_recipe_learns_from_a_slice(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for part, settings in load_recipe(RECIPES / f"{name}.yaml").data.sets.items():
        written(settings[0], *SLICES[name], 40 if part == "train" else 6)
    learns(name, tmp_path / "run")


@pytest.mark.story
@pytest.mark.parametrize("name", ["stories-span", "stories-writing"])
def test_stories_are_written_and_learned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    only = ["--facts"] if name == "stories-span" else []
    subprocess.run([sys.executable, RECIPES / "stories.py", "stories", "--count", "60", *only], check=True)
    parts = {
        part: [line.split("\t") for line in Path(f"stories/{part}.tsv").read_text().splitlines()]
        for part in ("train", "dev", "test")
    }
    stories = [row[0] for rows in parts.values() for row in rows]
    assert len(stories) == len(set(stories)), "no story stands twice, in one part or in two"
    kinds = {row[3] for row in parts["train"]}
    assert kinds == ({"fact", "two facts"} if only else {"fact", "two facts", "counting", "negation"})
    if only:
        assert all(row[1] in row[0].split() for rows in parts.values() for row in rows), "a span is in its story"
    learns(name, tmp_path / "run")


def test_the_answers_of_the_stories_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told again by hand: what was taken is where its owner is, and stays where it was put down."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import random

    from stories import World, counting, fact, negation, two_facts  # type: ignore[import-not-found]

    world = World(random.Random(1))
    world.at = {"anna": "attic", "hugo": "barn"}
    world.holds = {"hugo": ["rope"], "anna": []}
    world.lies = {"lamp": "cellar"}
    world.not_at = {"clara": "hall"}
    assert ("where is anna ?", "attic") in [*fact(world)]
    assert {*two_facts(world)} == {("where is the rope ?", "barn"), ("where is the lamp ?", "cellar")}
    assert ("how many things does anna have ?", "none") in [*counting(world)]
    told = [*negation(world)]
    assert ("is clara in the hall ?", "no") in told
    assert ("is hugo in the barn ?", "yes") in told
    assert ("is hugo in the barn ?", "no") not in told
