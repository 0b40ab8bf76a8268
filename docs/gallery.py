"""Write the tables of docs/gallery from the catalogue of public sets and the files that `recipes/measure.py` wrote.

python docs/gallery.py          # rewrite the blocks between their markers
python docs/gallery.py --check  # say whether they are up to date

The words of a page are written by hand; where its data live and what came out is not. A recipe without a result file
is "not measured yet".
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import results

from seqloom.api.public.catalogue import SETS

ROOT = Path(__file__).parents[1]
HERE = ROOT / "docs" / "gallery"
BEGIN, END = "<!-- {}: begin (docs/gallery.py writes this) -->", "<!-- {}: end -->"


@dataclass(frozen=True)
class Page:
    """An application: the public sets that it reads, its recipes, and result files of baselines to hold beside."""

    title: str
    sets: tuple[str, ...]
    recipes: tuple[str, ...]
    beside: tuple[str, ...] = ()


PAGES = {
    "translation": Page(
        "Translation",
        ("multi30k",),
        tuple(
            f"translation-{name}"
            for name in ["vector", "reversed", "context", "joint", "bahdanau", "luong", "feeding", "transformer"]
        ),
    ),
    "larger-translation": Page(
        "Translation, larger",
        ("tatoeba-deu-eng", "enja-50k", "pydocs-en-fr"),
        ("translation-tatoeba", "translation-japanese", "documentation"),
    ),
    "summarisation": Page(
        "Summarisation",
        ("aeslc", "scitldr"),
        ("summarisation",),
        tuple(f"benchmarks/results/lead-{name}.json" for name in ("aeslc", "scitldr")),
    ),
    "data-to-text": Page(
        "Data to text",
        ("e2e-nlg", "e2e-nlg-delexicalised", "webnlg2017"),
        ("restaurants", "restaurants-delexicalised", "triples"),
    ),
    "semantic-parsing": Page("Text to program", ("scan", "text2sql-advising"), ("commands", "queries")),
    "code": Page("Code from a description", ("django-code",), ("code",)),
    "dialogue": Page("Dialogue", ("dailydialog",), ("dialogue", "retrieval", "emotions")),
    "question-answering": Page(
        "Question answering",
        ("webnlg2017-questions",),
        ("stories-span", "stories-writing", "questions-span"),
        ("benchmarks/results/remembered.json",),
    ),
    "small-strings": Page(
        "Pronunciation, inflection, transliteration",
        ("sigmorphon2021-g2p", "cmudict", "conll2018-inflection", "translit-ar-en"),
        (
            "pronunciation-small",
            "pronunciation-small-lstm",
            "pronunciation-medium",
            "pronunciation-large",
            "inflection",
            "transliteration",
        ),
    ),
}


def measured(recipe: str) -> list[str]:
    """The rows of docs/results.md whose result files are of this recipe, links as seen from docs/gallery."""
    return shown(
        file for _, _, file, _ in results.ROWS if json.loads((ROOT / file).read_text()).get("recipe") == recipe
    )


def shown(files: Iterable[str]) -> list[str]:
    wanted = {*files}
    rows = [results.row(*parts) for parts in results.ROWS if parts[2] in wanted]
    return [re.sub(r"\]\((?=recipes/|benchmarks/)", "](../../", row) for row in rows]


def data(page: Page) -> Iterator[str]:
    yield "| set | what | where | licence | cite |"
    yield "|---|---|---|---|---|"
    for name in page.sets:
        one = SETS[name]
        yield f"| {name} | {one.what} | {one.home} | {one.licence} | {one.citation} |"
    if "stories-span" in page.recipes:
        yield "| written by a script | | [recipes/stories.py](../../recipes/stories.py) | as seqloom's | |"


def scores(page: Page) -> Iterator[str]:
    yield "| task | pairs | recipe | score (95 % interval) | time | measured |"
    yield "|---|---|---|---|---|---|"
    for recipe in page.recipes:
        rows = measured(recipe)
        yield from rows
        if not rows:
            yield f"| {told(recipe)} | | [{recipe}](../../recipes/{recipe}.yaml) | not measured yet | | |"
    yield from shown(page.beside)


def told(recipe: str) -> str:
    """What the first line of a recipe says of it, up to its first colon or stop."""
    first = (ROOT / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8").splitlines()[0]
    return re.split(r"[:.] ", first.removeprefix("# ").rstrip("."))[0]


def index() -> Iterator[str]:
    yield "| application | recipes | measured |"
    yield "|---|---|---|"
    for slug, page in PAGES.items():
        known = sum(bool(measured(recipe)) for recipe in page.recipes)
        recipes = ", ".join(f"[{recipe}](../../recipes/{recipe}.yaml)" for recipe in page.recipes)
        yield f"| [{page.title}]({slug}.md) | {recipes} | {known} of {len(page.recipes)} recipes |"


def filled(text: str, name: str, lines: Iterator[str]) -> str:
    begin, end = BEGIN.format(name), END.format(name)
    assert begin in text, f"a page without {begin}"
    before, rest = text.split(begin)
    return before + "\n".join([begin, *lines, end]) + rest.split(end)[1]


def pages() -> Iterator[tuple[Path, str]]:
    """Every file of the gallery, and what it should hold."""
    path = HERE / "README.md"
    yield path, filled(path.read_text(encoding="utf-8"), "pages", index())
    for slug, page in PAGES.items():
        path = HERE / f"{slug}.md"
        text = filled(path.read_text(encoding="utf-8"), "data", data(page))
        yield path, filled(text, "results", scores(page))


def main() -> int:
    same = True
    for path, new in pages():
        same = same and new == path.read_text(encoding="utf-8")
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    return 0 if same or "--check" not in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
