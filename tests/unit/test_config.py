"""Recipes: every refusal names the place and the nearest word, limits hold before anything is built, YAML means what
people think it means, and settings survive being written and read (law 9)."""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

import seqloom
from seqloom import config
from seqloom.config import Kind, Settings, Table, override, parse_yaml, read_yaml, render_yaml, validated
from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.models.tables import DECODERS
from seqloom.recipe import recipe_from
from seqloom.training.optim import OPTIMISERS


class Plain:
    class Settings(config.Settings):
        kind: Literal["plain"] = "plain"


class Fancy:
    class Settings(config.Settings):
        kind: Literal["fancy"] = "fancy"
        width: int = Field(4, ge=1)
        rate: float = 0.5
        name: str = "x"


SHAPES: Table[object] = Table("shapes", {"plain": Plain, "fancy": Fancy})


class Inner(Settings):
    shape: Annotated[Settings, Kind(SHAPES)] = Plain.Settings()
    depth: int = Field(1, ge=0)


class Outer(Settings):
    inner: Inner = Inner()
    maybe: Annotated[Settings | None, Kind(SHAPES)] = None
    language: str = "en"
    lr: float = Field(1e-3, gt=0)


def refusal(raw: object) -> str:
    with pytest.raises(SeqloomError) as refused:
        validated(Outer, raw, "recipe.yaml")
    assert refused.value.code == "E_RECIPE"
    assert refused.value.exit_code == 2
    assert refused.value.where == "recipe.yaml"
    return refused.value.what


# --- judging --------------------


def test_an_unknown_key_is_named_with_the_nearest() -> None:
    said = refusal({"langage": "de"})
    assert "unknown key 'langage' (did you mean \"language\"?)" in said
    assert "known: inner, maybe, language, lr" in said
    assert "did you mean" not in refusal({"zzz": 1})
    assert refusal({"inner": {"dept": 2}}).startswith("inner: unknown key 'dept' (did you mean \"depth\"?)")
    assert "unknown key 3" in refusal({3: 1})


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    said = refusal({"inner": {"shape": "fanzy"}})
    assert said == "inner.shape: unknown kind 'fanzy' (did you mean \"fancy\"?); shapes are: plain, fancy"
    assert "shapes (plain, fancy)" in refusal({"inner": {"shape": 3}})
    assert "or a mapping with a key 'kind'" in refusal({"maybe": {"width": 3}})  # no default here


def test_all_problems_are_told_at_once_with_their_paths() -> None:
    raw = {
        "inner": {"shape": {"kind": "fancy", "width": 0, "colour": "red"}, "depth": "deep"},
        "lr": -1,
        "sped": 3,
    }
    said = refusal(raw)
    assert said.startswith("5 problems: ")
    for piece in (
        "inner.shape.width: expected at least 1 (got 0)",
        "inner.shape: unknown key 'colour'",
        "inner.depth: expected an integer (got 'deep')",
        "lr: expected more than 0 (got -1)",
        "unknown key 'sped'",
    ):
        assert piece in said
    assert "\n" not in SeqloomError("E_RECIPE", said).line


def test_braces_in_what_a_person_wrote_are_only_text() -> None:
    assert "unknown key '{0}{x}'" in refusal({"{0}{x}": 1})
    assert "'{lr}'" in refusal({"inner": {"shape": "{lr}"}})


def test_a_bare_word_is_short_for_its_kind() -> None:
    wanted = Outer(inner=Inner(shape=Fancy.Settings()))
    for shape in ("fancy", {"kind": "fancy"}, Fancy.Settings()):
        assert Outer.model_validate({"inner": {"shape": shape}}) == wanted
    assert Outer.model_validate({"maybe": "plain"}).maybe == Plain.Settings()
    assert Outer.model_validate({"maybe": None}).maybe is None


class Holder(Settings):
    inner: Inner = Inner(shape=Fancy.Settings(width=7, name="seven"), depth=2)


@pytest.mark.parametrize(
    ("given", "shape", "depth"),
    [
        ({}, Fancy.Settings(width=7, name="seven"), 2),
        ({"depth": 5}, Fancy.Settings(width=7, name="seven"), 5),
        ({"shape": {"rate": 0.25}}, Fancy.Settings(width=7, name="seven", rate=0.25), 2),
        ({"shape": {"kind": "fancy", "width": 9}}, Fancy.Settings(width=9, name="seven"), 2),
        ({"shape": {"kind": "plain"}}, Plain.Settings(), 2),
        ({"shape": "fancy"}, Fancy.Settings(), 2),
    ],
)
def test_a_mapping_keeps_what_it_leaves_out_of_the_default(given: object, shape: Settings, depth: int) -> None:
    inner = Holder.model_validate({"inner": given}).inner
    assert (inner.shape, inner.depth) == (shape, depth)


def test_the_papers_decoders_keep_their_character_when_one_key_changes() -> None:
    luong = DECODERS.settings({"kind": "luong", "attention": {"heads": 2}}).model_dump()
    assert (luong["attention"]["score"]["kind"], luong["attention"]["query"]) == ("bilinear", "current")
    bahdanau = DECODERS.settings({"kind": "bahdanau", "context": {"readout": False}, "attention": {"keys": "linear"}})
    assert bahdanau.model_dump()["context"]["recurrence"] == "context"
    assert bahdanau.model_dump()["attention"]["query"] == "previous"


def test_settings_are_frozen_and_changes_are_judged_again() -> None:
    outer = Outer()
    with pytest.raises(ValidationError, match="frozen"):
        outer.language = "de"  # type: ignore[misc]
    changed = outer.with_(language="de", inner={"depth": 3})
    assert (changed.language, changed.inner.depth, outer.language) == ("de", 3, "en")
    with pytest.raises(ValidationError, match="unknown key 'nope'"):
        outer.with_(nope=1)
    with pytest.raises(ValidationError, match="more than 0"):
        outer.with_(lr=0.0)


@pytest.mark.parametrize("lr", [math.nan, math.inf, -math.inf, -1e-3, 0, "fast", None, [1e-3]])
def test_a_learning_rate_is_a_positive_number(lr: object) -> None:
    assert refusal({"lr": lr}).startswith("lr: ")
    for kind in OPTIMISERS:
        with pytest.raises(SeqloomError, match="lr: "):
            validated(OPTIMISERS.settings_class(kind), {"lr": lr}, "test")


@pytest.mark.parametrize("text", ["lr: .nan", "lr: .inf", "lr: -.inf", "lr: -1e-3", "lr: 1e999"])
def test_a_learning_rate_from_yaml_is_a_positive_number(text: str) -> None:
    assert "lr: " in refusal(parse_yaml(text, "recipe.yaml"))


@pytest.mark.parametrize("raw", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(raw: object) -> None:
    refusal(raw)
    refusal({"inner": raw})


# --- YAML --------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100_000.0),
        ("3.", 3.0),
        (".5", 0.5),
        ("-2.5e+3", -2500.0),
        ("1_000", 1000),
        ("7", 7),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("NO", "NO"),
        ("null", None),
        ("~", None),
        ("e3", "e3"),
        ("1e", "1e"),
        ("._", "._"),
        ("1.2.3", "1.2.3"),
        ("08", "08"),
        ("2024-01-01", "2024-01-01"),
        ("nan", "nan"),
        ("'1e-3'", "1e-3"),
        ("", None),
    ],
)
def test_words_and_numbers_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_yaml(f"key: {text}", "test")
    assert found == {"key": value}
    assert type(found["key"]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: 1\nb: 2\na: 3", "'a' stands twice (line 3)"),
        ("a: {b: 1, b: 2}", "'b' stands twice"),
        ("[" * 40 + "]" * 40, "deeper than 30"),
        ("[" * 100_000, "deeper than 30"),
        ("- a\n" * 60_000, "more than 50,000"),
        ("#" * 1_000_001, "at most 1,000,000"),
        ("a: [1", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: \x00", "YAML refused"),
        ("? [1, 2]\n: 3", "not valid YAML"),
        ("a: " + "9" * 5000, "YAML refused"),
    ],
    ids=lambda text: text[:20],
)
def test_hostile_or_broken_yaml_is_one_refusal(text: str, said: str) -> None:
    with pytest.raises(SeqloomError, match="E_RECIPE") as refused:
        parse_yaml(text, "recipe.yaml")
    assert said in refused.value.what
    assert refused.value.where.startswith("recipe.yaml")


def test_the_line_of_a_mistake_is_told() -> None:
    with pytest.raises(SeqloomError) as refused:
        parse_yaml("a: 1\nb: 2\nc: [1\nd: 3\n", "recipe.yaml")
    assert refused.value.where == "recipe.yaml:4"


def test_files_that_are_no_recipes_are_refused(tmp_path: Path) -> None:
    def code(content: bytes | None) -> str:
        path = tmp_path / "recipe.yaml"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SeqloomError) as refused:
            read_yaml(path)
        assert str(path) in refused.value.where
        return refused.value.code

    assert code(None) == "E_FILE"
    assert code(b"\xff\xfe") == "E_RECIPE"
    assert code(b"- a list") == "E_RECIPE"
    assert code(b"") == "E_RECIPE"
    assert code(b"#" * 1_000_001) == "E_RECIPE"
    (tmp_path / "recipe.yaml").write_text("lr: 1e-3\nlanguage: no\n")
    assert validated(Outer, read_yaml(tmp_path / "recipe.yaml"), "test") == Outer(lr=1e-3, language="no")
    with pytest.raises(SeqloomError, match="E_FILE"):
        read_yaml(tmp_path)


# --- --set --------------------


def test_overrides_reach_any_depth_and_leave_the_original_alone() -> None:
    raw: dict[str, object] = {"inner": {"shape": {"kind": "fancy", "width": 2}}, "lr": 1.0}
    found = override(raw, ["inner.shape.width=7", "lr=1e-3", "inner.depth=2", "language=no"])
    assert found == {
        "inner": {"shape": {"kind": "fancy", "width": 7}, "depth": 2},
        "lr": 1e-3,
        "language": "no",
    }
    assert raw == {"inner": {"shape": {"kind": "fancy", "width": 2}}, "lr": 1.0}


def test_a_new_kind_drops_the_keys_of_the_old_and_the_same_kind_keeps_them() -> None:
    raw = {"shape": {"kind": "fancy", "width": 2}}
    assert override(raw, ["shape.kind=plain"]) == {"shape": {"kind": "plain"}}
    assert override(raw, ["shape=plain"]) == {"shape": "plain"}
    assert override(raw, ["shape.kind=fancy"]) == raw
    assert override(raw, ["shape.kind=plain", "shape.x=1"]) == {"shape": {"kind": "plain", "x": 1}}


def test_a_bare_word_takes_more_keys() -> None:
    assert override({"shape": "fancy"}, ["shape.width=3"]) == {"shape": {"kind": "fancy", "width": 3}}
    assert override({}, ["shape.width=3"]) == {"shape": {"width": 3}}
    assert override({"shape": None}, ["shape.kind=plain"]) == {"shape": {"kind": "plain"}}


def test_values_are_yaml_and_may_hold_equal_signs() -> None:
    found = override({}, ["a=[1, 2]", "b={c: d}", "e=f=g", "h=", "i=null", "j='3'"])
    assert found == {"a": [1, 2], "b": {"c": "d"}, "e": "f=g", "h": None, "i": None, "j": "3"}


@pytest.mark.parametrize("assignment", ["lr", "=3", " =3", ""])
def test_what_is_no_assignment_is_a_usage_error(assignment: str) -> None:
    with pytest.raises(SeqloomError, match="E_USAGE"):
        override({}, [assignment])
    with pytest.raises(SeqloomError, match="E_RECIPE"):
        override({}, ["a=[1"])


# --- law 9: settings survive being written and read --------------------


def tables() -> list[tuple[str, Table[object]]]:
    """Every table of the package, found by looking."""
    found: dict[str, Table[object]] = {}
    for module in pkgutil.walk_packages(seqloom.__path__, "seqloom."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Table):
                found[value.name] = value
    return sorted(found.items())


REQUIRED: dict[str, object] = {  # for settings that have no default
    "path": "data.tsv",
    "tokenizer": "words",
    "source": "a.txt",
    "target": ["b.txt", "c.txt"],
    "tokens": [7, 8],
    "every": 100,
    "phrases": [[7, 8], [9]],
    "entries": [[7], [8, 9]],
    "expression": "[a-c]+x?",
    "separator": "no",
    "model": "joint.model",
}
ENTRIES = [(name, table, kind) for name, table in tables() for kind in table]


@pytest.mark.parametrize(("name", "table", "kind"), ENTRIES, ids=[f"{name}-{kind}" for name, _, kind in ENTRIES])
def test_every_entry_survives_writing_and_reading(name: str, table: Table[object], kind: str) -> None:
    fields = table.settings_class(kind).model_fields
    given = {key: REQUIRED[key] for key, field in fields.items() if field.is_required()}
    made = table.settings({"kind": kind, **given})
    read = parse_yaml(render_yaml(made), "test")
    assert table.settings(read) == made
    assert render_yaml(table.settings(read)) == render_yaml(made)
    assert set(read) == set(fields)  # every default is written out
    assert config.kind_of(made) == kind
    if not given:
        assert table.settings(kind) == made


def test_the_tables_of_the_brief_are_all_found() -> None:
    names = {name for name, _ in tables()}
    assert {"encoders", "decoders", "cells", "scores", "compositions", "embeddings", "heads"} <= names


def test_a_whole_model_survives_writing_and_reading() -> None:
    raw = {
        "encoder": {"cell": "gru", "self_attention": {"score": "dot", "causal": True}},
        "decoder": {"kind": "bahdanau", "attention": {"query": "previous", "heads": 2, "score": {"width": 8}}},
        "head": "mlp",
        "tied": True,
    }
    made = validated(EncoderDecoder.Settings, raw, "test")
    assert validated(EncoderDecoder.Settings, parse_yaml(render_yaml(made), "test"), "test") == made


@settings(max_examples=300, deadline=None)
@given(
    language=st.text(st.characters(exclude_categories=("Cs",))),
    name=st.from_regex(r"[-+.0-9eE_:noyINFa]{1,8}", fullmatch=True),
    rate=st.floats(-config.MOST, config.MOST, allow_subnormal=False),
    depth=st.integers(0, config.MOST),
)
@example(language="no", name="1e-3", rate=1e-3, depth=0)
@example(language="1e3", name="08", rate=1e8, depth=1)
@example(language="null", name="2024-01-01", rate=-0.0, depth=1)
@example(language="\u2028 \x85 a\n\tb ", name="1:30", rate=5e-300, depth=1)
def test_any_text_and_number_survives_writing_and_reading(language: str, name: str, rate: float, depth: int) -> None:
    shape = Fancy.Settings(name=name, rate=rate)
    made = Outer(inner=Inner(shape=shape, depth=depth), maybe=shape, language=language)
    assert validated(Outer, parse_yaml(render_yaml(made), "test"), "test") == made


# --- tables --------------------


def test_a_table_builds_what_its_settings_name() -> None:
    class Named:
        class Settings(config.Settings):
            kind: Literal["named"] = "named"

        def __init__(self, settings: Settings, *, size: int) -> None:
            self.size = size

    table: Table[Named] = Table("things", {"named": Named})
    assert (len(table), list(table)) == (1, ["named"])
    assert table.build(table.settings("named"), size=3).size == 3
    with pytest.raises(ValueError, match=r"unknown kind 'name' \(did you mean \"named\"\?\); things are: named"):
        table["name"]


def test_a_recipe_trains_as_long_as_it_says_and_no_default_ends_it_sooner() -> None:
    recipe = recipe_from({"data": {"train": "x.tsv"}, "training": {"steps": 9}}, "test")
    assert (recipe.training.steps, recipe.training.epochs, recipe.training.patience) == (9, None, None)
    with pytest.raises(SeqloomError, match="training"):
        recipe_from({"data": {"train": "x.tsv"}}, "test")


def test_other_packages_add_rows_by_entry_points(tmp_path: Path) -> None:
    """An installed package whose metadata name a class in the group `seqloom.<table>`: its kind can be used."""
    (tmp_path / "their_scores.py").write_text(
        "from typing import Literal\nfrom seqloom import config\n"
        "class Theirs:\n    class Settings(config.Settings):\n"
        "        kind: Literal['theirs'] = 'theirs'\n        size: int = 3\n"
    )
    about = tmp_path / "their_scores-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-scores\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[seqloom.shapes]\ntheirs = their_scores:Theirs\n")
    asks = (
        "from seqloom.config import Table\n"
        "table = Table('shapes', {})\n"
        "print(table.settings({'kind': 'theirs', 'size': 5}).size, *table, *Table('others', {}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "theirs"]
