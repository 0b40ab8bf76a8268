"""What a demonstration is. It names things; running one is `seqloom.api.demo`'s business."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

INSTALL = "pip install 'seqloom[demo]'"
PAIRS = "{pairs}"  # stands in a demo's recipe for the path of its pairs


@dataclass(frozen=True)
class Demo:
    """Data, a recipe, and the words in which its results are told."""

    name: str
    about: str  # what is learned, one line
    pairs: Callable[[], Iterator[tuple[str, str]]]  # the same pairs at every call
    recipe: str  # commented YAML, with PAIRS where the path goes
    sources: str  # what one source is, in the plural: words, phrases
    units: tuple[tuple[str, Callable[[str], Iterable[str]]], tuple[str, Callable[[str], Iterable[str]]]]
    question: str  # a source of one's own, for the first command to type afterwards
    called: Mapping[str, str] = field(default_factory=dict)  # metrics by kind, as people of this trade name them
