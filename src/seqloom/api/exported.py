"""What an exported model says of itself: its card, with all that reading, searching and judging take from a recipe.

No torch here: whoever has an engine needs none.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from seqloom import cards
from seqloom.config import Kind, Settings
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.errors import SeqloomError
from seqloom.files import read_json
from seqloom.metrics.calibration import Calibration
from seqloom.search.hypotheses import LENGTHS
from seqloom.search.limits import MOST_TOKENS, Limits
from seqloom.specials import SPECIALS

CARD = "engine.json"
ENGINE = "ctranslate2"
FIX = "'seqloom export RUN --to ctranslate2' makes one"
MAX_CARD_BYTES = 16_000_000


class Taken(Settings):
    """What an engine takes from the run that it was made of."""

    engine: Literal["ctranslate2"] = "ctranslate2"
    name: str
    languages: dict[str, str] = Field(default_factory=dict)
    quantised: str | None = None
    parameters: int = Field(0, ge=0, le=10**15)
    source: TextCodec.Settings
    target: TextCodec.Settings | None = None  # null: source and target share one
    extras: dict[str, TextCodec.Settings] = Field(default_factory=dict)  # symbols before the source, in this order
    beam: int = Field(5, ge=1, le=100_000)
    length: Annotated[Settings, Kind(LENGTHS)] = LENGTHS.settings("mean")
    limits: Limits = Limits()
    max_source: int = Field(ge=1, le=MOST_TOKENS)
    max_extra: int = Field(ge=1, le=MOST_TOKENS)
    sentences_per_line: float | None = Field(None, ge=0, le=MOST_TOKENS)
    calibration: Calibration = Calibration()

    def codecs(self, folder: Path) -> Codecs:
        source = TextCodec.load(self.source, folder / "source")
        target = source if self.target is None else TextCodec.load(self.target, folder / "target")
        extras = {name: TextCodec.load(settings, folder / "extras" / name) for name, settings in self.extras.items()}
        return Codecs(source, target, extras, prefixes=list(extras))


class EngineCard(cards.Card):
    """The card of an exported model."""

    NAME = "an exported model"
    seqloom: str
    weights: str  # sha256 of the weights that were exported
    taken: Taken


def spelled(codecs: Codecs) -> tuple[list[str], list[str]]:
    """Every id of source and target as a string of its own: pieces as they are, special tokens as they are shown."""
    sides = (codecs.source.as_text().vocabulary, codecs.target.vocabulary)
    return tuple(_distinct([vocabulary.piece(token) for token in range(len(vocabulary))]) for vocabulary in sides)  # type: ignore[return-value]


def _distinct(pieces: list[str]) -> list[str]:
    """A text may spell a special token; its piece is then marked."""
    taken = set(SPECIALS)
    ordinary = [piece + "\u2060" if piece in taken else piece for piece in pieces[len(SPECIALS) :]]
    return [*SPECIALS, *ordinary]


def refuse_missing(*packages: str) -> None:
    """E_EXTRA for a library that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise SeqloomError("E_EXTRA", f"{package} is not installed", fix="pip install 'seqloom[export]'")


def weights_of(run: Path) -> str:
    """The sha256 of the weights that a run or bundle folder has now, by its card; empty where there is none."""
    for card in (run / "bundle" / "card.json", run / "card.json"):
        if card.is_file():
            files = read_json(card, MAX_CARD_BYTES, "a bundle's card", FIX).get("files")
            entry = files.get("weights.safetensors") if isinstance(files, dict) else None
            return str(entry.get("sha256")) if isinstance(entry, dict) else ""
    return ""


def refuse_stale(weights: str, folder: Path) -> None:
    """E_BUNDLE where the run around an export has gone on since: its answers would be those of older weights."""
    now = weights_of(folder.parent)
    if weights and now and now != weights:
        what = "the run was trained on after it was exported"
        raise SeqloomError("E_BUNDLE", what, where=str(folder), fix="'seqloom export' again")


def find_engine(path: str | Path) -> Path:
    """The exported model of a run folder, or the folder itself when it is one."""
    folder = Path(path)
    for place in (folder / ENGINE, folder):
        if (place / CARD).is_file():
            return place
    if not folder.exists():
        raise SeqloomError("E_FILE", "no such run or exported model", where=str(folder), fix=FIX)
    raise SeqloomError("E_BUNDLE", "this run was not exported yet", where=str(folder), fix=FIX)
