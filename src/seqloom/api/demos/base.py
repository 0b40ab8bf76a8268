"""What a demonstration is. It names things; running one is `seqloom.api.demo`'s business."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INSTALL = "pip install 'seqloom[demo]'"
PAIRS = "{pairs}"  # stands in a demo's recipe for the path of its pairs


@dataclass(frozen=True)
class Demo:
    """Data, a recipe, and the words in which its results are told."""

    name: str
    about: str  # what is learned, one line
    pairs: Callable[[], Iterator[tuple[str, ...]]]  # source, target, further references; the same at every call
    recipe: str  # commented YAML, with PAIRS where the path goes
    sources: str  # what one source is, in the plural: words, phrases
    units: tuple[tuple[str, Callable[[str], Iterable[str]]], tuple[str, Callable[[str], Iterable[str]]]]
    question: str  # a source of one's own, for the first command to type afterwards
    held_out: Mapping[str, Callable[[], Iterator[tuple[str, ...]]]] = field(default_factory=dict)  # dev, test
    beside: Callable[[Path], None] | None = None  # writes the files that sources are, where pairs only name them
    change: tuple[str, str] = ("dot", "model.decoder.attention.score=dot")  # to compare with: its name, the recipe line
    called: Mapping[str, str] = field(default_factory=dict)  # metrics by kind, as people of this trade name them
