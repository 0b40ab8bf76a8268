"""Recipes and command lines that do not fit their further sources, mixtures or copies: exit 2 or 3, and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Command
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe, recipe_from

pytest_plugins = ["command_fixtures"]

TAGGED = {"path": "a.tsv", "extras": {"tags": 2}}


def judged(data: object, **more: object) -> Recipe:
    return recipe_from({"data": data, "training": {"steps": 1}, **more}, "r.yaml")


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        ({"train": TAGGED}, {}, "data.train: nobody reads 'tags'; add extras: {tags: {use: prefix}}"),
        ({"train": "a.tsv"}, {"extras": {"tags": {}}}, "extras: data.train has no 'tags'"),
        ({"train": TAGGED}, {"extras": {"tags": {"use": "prefx"}}}, 'did you mean "prefix"?'),
        ({"train": TAGGED}, {"extras": {"Tags": {}}}, "small letters"),
        ({"train": TAGGED, "dev": "d.tsv"}, {"extras": {"tags": {}}}, "dev: some datasets have tags, others not"),
        ({"train": [TAGGED, "b.tsv"]}, {"extras": {"tags": {}}}, "train: some datasets have tags, others not"),
        (
            {"train": TAGGED},
            {"extras": {"tags": {"use": "encoder"}}, "model": {"kind": "joint"}},
            "extras.tags.use: a joint model has no encoders",
        ),
        ({"train": []}, {}, "train: an empty list"),
        ({"train": [{"path": "a.tsv", "share": 0}]}, {}, "train.0.share"),
        ({"train": [{"path": "a.tsv", "shares": 1}]}, {}, 'did you mean "share"?'),
        ({"train": {"path": "a.tsv", "share": 0.5}}, {}, "train: one dataset alone is not mixed"),
        ({"train": "a.tsv", "mixing": {"temperature": 2}}, {}, "train: one dataset alone is not mixed"),
        ({"train": [{"path": "a.tsv", "share": 1}, "b.tsv"]}, {}, "leave nothing for those without one"),
        (
            {"train": [{"path": "a.tsv", "share": 0.5}, "b.tsv"], "mixing": {"temperature": 2}},
            {},
            "mixing.temperature: shares are given",
        ),
        ({"train": ["a.tsv", "b.tsv"], "mixing": {"temperature": 0.5}}, {}, "data.mixing.temperature"),
        ({"train": "a.tsv", "dev": {"path": "d", "share": 1}}, {}, "dev: share and importance are for training"),
        ({"train": "a.tsv", "test": {"path": "d", "importance": 2}}, {}, "test: share and importance are for training"),
        (
            {"train": "a.tsv"},
            {"model": {"head": "copy"}, "source": {"tokenizer": "words"}, "target": {"tokenizer": "characters"}},
            "model.head: copy compares pieces of text; give `source` and `target` the same tokenizer",
        ),
        (
            {"train": "a.tsv"},
            {"model": {"head": "copy"}, "task": {"source_noise": {"drop": 0.1}}},
            "task.source_noise: a copy head points at source tokens",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(data: object, more: dict[str, object], said: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        judged(data, **more)
    assert (caught.value.code, caught.value.exit_code) == ("E_RECIPE", 2)
    assert said in caught.value.what, caught.value.what


def test_a_recipe_with_extras_and_a_mixture_survives_writing_and_reading(tmp_path: Path) -> None:
    from seqloom.config import render_yaml
    from seqloom.recipe import load_recipe

    data = {
        "train": [
            {**TAGGED, "share": 0.7, "constants": {"lang": "<2de>"}},
            {"path": "b.jsonl", "extras": {"tags": "f"}, "constants": {"lang": "<2fr>"}, "importance": 0.5},
        ],
        "dev": {"source": "s", "target": "t", "extras": {"tags": "g"}, "constants": {"lang": "x"}},
    }
    extras = {"tags": {"use": {"kind": "encoder", "encoder": "rnn"}}, "lang": {"use": "prefix"}}
    recipe = judged(data, extras=extras)
    (tmp_path / "r.yaml").write_text(render_yaml(recipe))
    assert load_recipe(tmp_path / "r.yaml") == recipe
    assert recipe.data.files() == {"train": ["a.tsv", "b.jsonl"], "dev": ["s", "t", "g"]}


@pytest.mark.parametrize(
    ("typed", "name", "said"),
    [
        (["--text", "abc", "--extra", "tags=V"], "E_USAGE", "--extra 'tags': no such input; this model reads: source"),
        (["--text", "abc", "--extra", "tags"], "E_USAGE", "is not of the form NAME=TEXT"),
        (["--text", "abc", "--json-input"], "E_USAGE", "--json-input is for lines of a file"),
    ],
)
def test_extras_of_a_model_that_has_none(typed: list[str], name: str, said: str, seqloom: Command, run: Path) -> None:
    assert said in seqloom("predict", run, *typed).refused(name, 2)
