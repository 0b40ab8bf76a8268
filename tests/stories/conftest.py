"""What stories share: a tiny run, trained once per session in a few seconds on one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe beside its data."""
    return tiny.write_recipe(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_run(tiny_recipe: Path) -> Path:
    """A finished run that gets most sentences right. Copy the folder before you change anything in it."""
    from seqloom.api.train import train

    return train(tiny_recipe, tiny_recipe.parent / "run").folder
