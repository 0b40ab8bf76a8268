"""The gallery's tables are those of the result files and the catalogue, and its pages have what a newcomer needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
PAGES = sorted(path for path in GALLERY.glob("*.md") if path.name != "README.md")
SECTIONS = ("## The data", "## Do it", "## What came out", "## An example, explained")


def test_the_tables_are_what_the_files_say() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "gallery.py", "--check"], check=False)
    assert done.returncode == 0, "run: python docs/gallery.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_can_be_followed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)
    recipes = re.findall(r"seqloom train (recipes/[\w-]+\.yaml)", text)
    assert recipes, "a command that trains"
    assert all((ROOT / recipe).is_file() for recipe in recipes)


def test_a_number_stands_only_where_a_file_says_it() -> None:
    """Outside of the written tables no page tells a score."""
    for page in PAGES:
        words = re.sub(r"<!-- (\w+): begin.*?<!-- \1: end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"(BLEU|ROUGE|CER|SER|PER|WER|exact match|accuracy)\D{0,20}\d", words), page.name


def test_every_recipe_of_text_is_in_the_gallery_or_has_a_how_to() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [*GALLERY.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    text += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "howto").glob("*.md"))
    missing = [path.stem for path in (ROOT / "recipes").glob("*.yaml") if path.stem not in text]
    assert not missing
