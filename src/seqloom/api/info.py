"""`seqloom info`: what a run or bundle is, without loading its network; and what this machine has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from seqloom import runtime
from seqloom.api.folder import METRICS, RECIPE, finished_reason, is_finished, read_recipe
from seqloom.api.load import bundle_recipe, find_bundle
from seqloom.bundle import Bundle, open_bundle
from seqloom.config import Plain, Settings, kind_of
from seqloom.data.source import SourceSettings
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe
from seqloom.training import checkpoints

EXTRAS = {"plot": "matplotlib", "board": "tensorboard", "meteor": "nltk", "demo": "babel"}


@dataclass(frozen=True)
class Information:
    """One run or bundle. `bundle` is None before the first validation, `progress` for a bundle without its run."""

    folder: Path
    recipe: Recipe
    bundle: Bundle | None
    progress: Mapping[str, Plain] | None

    def as_dict(self) -> dict[str, Plain]:
        """Everything, as plain data."""
        recipe = self.recipe
        found: dict[str, Plain] = {
            "folder": str(self.folder),
            "languages": recipe.languages.model_dump(mode="json"),
            "model": _model(recipe),
            "data": {name: list(paths) for name, paths in recipe.data.files().items()},
            "progress": None if self.progress is None else dict(self.progress),
        }
        if self.bundle is not None:
            found["bundle"] = {
                "folder": str(self.bundle.folder),
                "bytes": sum(self.bundle.files.values()),
                "seqloom": self.bundle.seqloom,
                "vocabulary": _vocabularies(self.bundle, recipe),
                **self.bundle.about,  # type: ignore[dict-item]
            }
        return found


def information(run: str | Path) -> Information:
    """What there is to know about a run or bundle folder; E_FILE or E_BUNDLE where it is neither."""
    folder = Path(run)
    place = find_bundle(folder)
    bundle = open_bundle(place) if (place / "card.json").exists() else None
    if (folder / RECIPE).exists() and place != folder:
        return Information(folder, read_recipe(folder / RECIPE, ()), bundle, _progress(folder))
    if bundle is None:
        fix = "give the folder of a run or of a bundle"
        raise SeqloomError(
            "E_BUNDLE", "neither a run nor a bundle: no recipe.yaml, no card.json", where=str(run), fix=fix
        )
    return Information(folder, bundle_recipe(bundle), bundle, None)


def machine() -> dict[str, Plain]:
    """Versions, processor, threads, and which optional packages are there."""
    return {**runtime.describe(), "extras": {name: _version(package) for name, package in EXTRAS.items()}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _model(recipe: Recipe) -> dict[str, Plain]:
    model = recipe.model
    sides = {"source": recipe.source, "target": recipe.target, **recipe.extras}
    return {
        **{name: _described(part) for name, part in model.parts.items()},
        **({"extras": {name: kind_of(extra.use) for name, extra in recipe.extras.items()}} if recipe.extras else {}),
        "tokenizers": {side: _cut(settings) for side, settings in sides.items()},
        **({} if model.ranks else {"search": _described(recipe.search.strategy)}),
    }


def _cut(settings: SourceSettings) -> str:
    """The kind of tokenizer; of what is no text, the kind of source."""
    tokenizer = settings.model_dump(mode="json").get("tokenizer")
    return str(tokenizer["kind"]) if isinstance(tokenizer, dict) else kind_of(settings)


def _described(settings: Settings) -> str:
    """`rnn, width 256, layers 1`: the kind and the sizes."""
    plain = settings.model_dump(mode="json")
    sizes = [f"{key} {plain[key]}" for key in ("width", "layers", "size") if key in plain]
    cell = [plain["cell"]["kind"]] if isinstance(plain.get("cell"), dict) else []
    return ", ".join([kind_of(settings), *cell, *sizes])


def _vocabularies(bundle: Bundle, recipe: Recipe) -> dict[str, Plain]:
    sides = ["source"] if recipe.model.one_vocabulary else ["source", "target"]
    places = {
        **{side: side for side in sides},
        **{name: f"extras/{name}" for name, extra in recipe.extras.items() if not extra.shared},
    }
    files = {side: bundle.folder / place / "vocabulary.txt" for side, place in places.items()}
    return {side: len(file.read_bytes().splitlines()) for side, file in files.items() if file.exists()}


class _Line(BaseModel):
    """A line of `metrics.jsonl`, as far as it is told."""

    model_config = ConfigDict(allow_inf_nan=False)


class _Logged(_Line):
    event: Literal["logged"]
    step: int
    epoch: int
    loss: float | None
    progress: float | None
    tokens_seen: int
    tokens_per_second: float | None
    elapsed: Annotated[float, Field(ge=0, lt=1e12)]


class _Validated(_Line):
    event: Literal["validated"]
    step: int
    values: dict[str, float | None]
    metric: str
    best: float | None
    best_step: int


_LINE: TypeAdapter[_Logged | _Validated] = TypeAdapter(_Logged | _Validated)


def _progress(folder: Path) -> dict[str, Plain]:
    """How far the run is, by its metrics file; torn lines are passed over."""
    found: dict[str, Plain] = {"finished": is_finished(folder)}
    if is_finished(folder):
        found["reason"] = finished_reason(folder)
    for line in _lines(folder / METRICS):
        match line:
            case _Logged():
                found |= line.model_dump(exclude={"event"})
            case _Validated():
                found["validation"] = {"step": line.step, **line.values}
                found["best"] = {"metric": line.metric, "value": line.best, "step": line.best_step}
    found["checkpoints"] = [checkpoints.step_of(path) for path in checkpoints.every(folder)]
    return found


def _lines(path: Path) -> Iterator[_Logged | _Validated]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        with suppress(ValidationError):
            yield _LINE.validate_json(line)
