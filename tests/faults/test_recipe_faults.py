"""FAULTS.md, table "Recipe", through the command line: the name, the exit code, and the words a person needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commands import Command, write_pairs, write_recipe

pytest_plugins = ["command_fixtures"]


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


# --- what the recipe says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("trainning.steps=3", "unknown key 'trainning' (did you mean \"training\"?)"),
        ("training.step=3", "training: unknown key 'step' (did you mean \"steps\"?)"),
        ("model.encoder.widht=3", "unknown key 'widht' (did you mean \"width\"?)"),
        ("source.tokenizer=charcters", "unknown kind 'charcters' (did you mean \"characters\"?)"),
        ("training.optimiser.kind=adm", "did you mean"),
        ("evaluation.metrics=[blue]", 'did you mean "bleu"?'),
        ("training.metric=bleu", "training.metric: 'bleu' is not measured"),
        ("training.steps=many", "training.steps: "),
        ("training.steps=1.5", "training.steps: "),
        ("training.optimiser.lr=.nan", "finite"),
        ("training.optimiser.lr=-1", "training.optimiser"),
        ("model.encoder.dropout=1.0", "less than 1"),
        ("model.shared=true", "one vocabulary"),
        ("data.split.dev=0.9", "data.split.dev: "),
        ("languages.source=not a code", "languages.source: "),
    ],
)
def test_a_wrong_key_or_value_is_named(assignment: str, said: str, seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    changes = ["--set", assignment] + (["--set", "target.tokenizer=words"] if "shared" in assignment else [])
    line = seqloom("train", recipe, "--run", tmp_path / "run", *changes).refused("E_RECIPE", 2)
    assert said in line, line
    assert not (tmp_path / "run").exists(), "nothing is made for a recipe that cannot be"


def test_all_problems_are_told_at_once(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    wrong = ["training.steps=-1", "model.encoder.dropout=1.0", "batching.tokens=no", "nonsense=1"]
    line = seqloom("config", recipe, *[part for one in wrong for part in ("--set", one)]).refused("E_RECIPE", 2)
    assert "4 problems" in line
    for key in ("training.steps", "model.encoder", "batching.tokens", "nonsense"):
        assert key in line


def test_heads_that_do_not_divide_the_width(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    changes = ["--set", "model.decoder.attention={heads: 5}"]
    answer = seqloom("train", recipe, "--run", tmp_path / "run", *changes)
    assert "5" in answer.refused("E_RECIPE", 2)


@pytest.mark.parametrize("assignment", ["steps", "=3", "steps 3"])
def test_an_assignment_that_is_none(assignment: str, seqloom: Command, tmp_path: Path) -> None:
    line = seqloom("config", write_recipe(tmp_path), "--set", assignment).refused("E_USAGE", 2)
    assert "key.key=value" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"training: {steps: 1\n", "not valid YAML"),
        (b"training: {steps: 1}\ntraining: {steps: 2}\n", "stands twice"),
        (b"- a\n- b\n", "a mapping of keys"),
        (b"", "a mapping of keys"),
        (b"data: \xff\n", "not UTF-8 at byte 6"),
        (b"a: !!python/object/apply:os.system ['true']\n", ""),
    ],
)
def test_a_file_that_is_no_recipe(text: bytes, said: str, seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(text)
    for command in ("train", "config", "check"):
        line = seqloom(command, path).refused("E_RECIPE", 2)
        assert said in line
        assert str(path) in line


def test_data_in_place_of_a_recipe_is_told_apart(seqloom: Command, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv")
    assert f"seqloom init {pairs}" in seqloom("train", pairs).refused("E_USAGE", 2)


@pytest.mark.parametrize("command", ["train", "config", "check"])
def test_a_recipe_that_is_not_there(command: str, seqloom: Command, tmp_path: Path) -> None:
    assert str(tmp_path / "no.yaml") in seqloom(command, tmp_path / "no.yaml").refused("E_FILE", 6)
    assert "no recipe.yaml" in seqloom(command, tmp_path).refused("E_FILE", 6)


def test_hostile_yaml_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    """Size, depth and aliases are limited while reading, in a process that has imported nothing heavy."""
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    (tmp_path / "bomb.yaml").write_text(bomb)
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 100 + "]" * 100)
    (tmp_path / "very-deep.yaml").write_text("a: " + "{b: " * 200_000)
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(50_000_000)
    code = """
import sys
from seqloom.cli.main import run
for name in ("bomb", "deep", "very-deep", "huge"):
    for command in ("train", "config", "check"):
        print(run([command, f"{name}.yaml"]), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["2 False"] * 12, done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert all(line.startswith("seqloom: error[E_RECIPE]: ") for line in said)
    for word in ("aliases", "nested deeper", "more than 1,000,000 bytes"):
        assert any(word in line for line in said), word


# --- where it goes -----------------------------------------------------------------------------------------------


def test_a_run_folder_of_another_recipe_is_never_overwritten(seqloom: Command, run: Path, tmp_path: Path) -> None:
    before = (run / "bundle" / "weights.safetensors").read_bytes()
    line = seqloom("train", run, "--set", "training.steps=13", "--set", "model.encoder.width=18").refused("E_RUN", 2)
    assert "training.steps: 12 -> 13" in line
    assert "model.encoder.width: 16 -> 18" in line
    assert "--replace" in line
    assert (run / "bundle" / "weights.safetensors").read_bytes() == before
    assert seqloom("train", run, "--set", "training.steps=1", "--replace").code == 0
    assert (run / "bundle" / "weights.safetensors").read_bytes() != before


def test_a_run_folder_that_cannot_be_written(seqloom: Command, tmp_path: Path) -> None:
    """Before training. A read-only folder does not stop root, so a file stands where the folder should be."""
    recipe = write_recipe(tmp_path)
    (tmp_path / "taken").write_text("mine")
    for place in ("taken", "taken/below", "/proc/seqloom"):
        line = seqloom("train", recipe, "--run", tmp_path / place).refused("E_FILE", 6)
        assert place.split("/")[-1] in line
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize("name", ["with spaces", "ünïcödé 日本", "quote's", "-dash", "new\nline"])
def test_names_of_any_kind_work(name: str, seqloom: Command, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    recipe = write_recipe(tmp_path)
    pairs = write_pairs(folder / f"{name}.tsv")
    changes = ["--set", f'data.train="{pairs}"'.replace("\n", "\\n"), "--set", "training.steps=1"]
    assert seqloom("train", recipe, "--run", folder / "run", *changes).code == 0
    assert seqloom("predict", folder / "run", "-t", "abc").code == 0


def test_missing_data_leaves_nothing_behind(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    before = files_in(tmp_path)
    line = seqloom("train", recipe, "--run", tmp_path / "run", "--set", "data.dev=gone.tsv").refused("E_FILE", 6)
    assert "gone.tsv" in line
    assert files_in(tmp_path) == before
