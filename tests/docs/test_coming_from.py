"""The recipes of docs/coming-from.md are recipes, and what they promise to do as another tool does is what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from seqloom.config import parse_yaml
from seqloom.recipe import Recipe, recipe_from

TEXT = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
TOOLS = ["OpenNMT-py", "fairseq", "JoeyNMT", "Sockeye", "yoyodyne", "Hugging Face"]


def section(tool: str) -> str:
    return TEXT.split(f"\n## {tool}\n")[1].split("\n## ")[0]


def recipe_for(tool: str) -> Recipe:
    (body,) = re.findall(r"```yaml\n# seqloom\n(.*?)```", section(tool), re.DOTALL)
    raw = parse_yaml(body, tool)
    assert isinstance(raw, dict)
    return recipe_from(raw, tool)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_its_configuration_and_ours(tool: str) -> None:
    fences = re.findall(r"```(\w+)\n# (.+)\n", section(tool))
    assert len(fences) == 2, "theirs, then ours"
    assert fences[1] == ("yaml", "seqloom")
    recipe = recipe_for(tool)
    assert recipe.training.steps or recipe.training.epochs


def test_the_configurations_agree_where_both_are_yaml() -> None:
    (theirs,) = re.findall(r"```yaml\n# OpenNMT-py\n(.*?)```", section("OpenNMT-py"), re.DOTALL)
    opennmt, ours = yaml.safe_load(theirs), recipe_for("OpenNMT-py").model_dump()
    assert opennmt["hidden_size"] == ours["model"]["encoder"]["width"]
    assert opennmt["train_steps"] == ours["training"]["steps"]
    assert opennmt["accum_count"] == [ours["training"]["accumulate"]]
    rate = opennmt["learning_rate"] * (opennmt["hidden_size"] * opennmt["warmup_steps"]) ** -0.5
    assert rate == pytest.approx(ours["training"]["optimiser"]["lr"], rel=0.02)
    (theirs,) = re.findall(r"```yaml\n# JoeyNMT\n(.*?)```", section("JoeyNMT"), re.DOTALL)
    joey, ours = yaml.safe_load(theirs), recipe_for("JoeyNMT").model_dump()
    assert joey["model"]["encoder"]["ff_size"] == ours["model"]["encoder"]["feedforward"]
    assert joey["training"]["epochs"] == ours["training"]["epochs"]
    assert joey["testing"]["beam_alpha"] == ours["search"]["strategy"]["length"]["alpha"]
