"""`seqloom.export_run("runs/x")`: a trained model for another library to run, with all that it needs to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from seqloom import __version__, cards
from seqloom.api.exported import CARD, EngineCard, Taken, refuse_missing, refuse_stale, spelled, weights_of
from seqloom.api.exported import ENGINE as CTRANSLATE2
from seqloom.api.load import find_bundle, load, save_codecs
from seqloom.api.model import Model
from seqloom.cards import listed_files
from seqloom.config import Settings, kind_of
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, atomic_write
from seqloom.search.beam import BeamSettings
from seqloom.search.limits import MOST_TOKENS
from seqloom.wiring import parameters

ONNX = "onnx"
PACKAGES = {CTRANSLATE2: ("ctranslate2",), ONNX: ("onnx", "onnxscript", "onnxruntime")}
CARDS = {CTRANSLATE2: CARD, ONNX: "onnx.json"}  # by which an export is known
QUANTISED = ("int8", "int16", "float16", "bfloat16")  # how weights may be kept, besides float32


def export_run(
    run: str | Path, folder: str | Path | None = None, quantise: str | None = None, to: str = CTRANSLATE2
) -> Path:
    """Write a run's model for another library; by default into the run, where `predict --engine` looks for it."""
    writers = {CTRANSLATE2: _write_ctranslate2, ONNX: _write_onnx}
    if to not in writers:
        raise SeqloomError("E_USAGE", f"no export to {to!r}", fix=f"one of: {', '.join(writers)}")
    if quantise is not None and (to != CTRANSLATE2 or quantise not in QUANTISED):
        what = f"weights cannot be kept as {quantise!r}" + ("" if to == CTRANSLATE2 else f" for {to}")
        raise SeqloomError(
            "E_USAGE", what, where="--quantise", fix=f"one of: {', '.join(QUANTISED)}, for {CTRANSLATE2}"
        )
    refuse_missing(*PACKAGES[to])
    place = Path(run) / to if folder is None else Path(folder)
    _refuse_place(place, find_bundle(run), to)
    model = load(run, device="cpu", packed=False)
    with atomic_folder(place) as unfinished:
        writers[to](model, unfinished, quantise, weights_of(Path(run)))
    return place


def _refuse_place(place: Path, bundle: Path, to: str) -> None:
    """E_USAGE for a folder of which something would be lost: the bundle, which holds what its card names and nothing
    else, or whatever there is that is no export."""
    if place.resolve().is_relative_to(bundle.resolve()):
        what = "this is a bundle without a run around it, and what is added to a bundle spoils it"
        fix = "name a folder for the export: -o FOLDER"
        if to == ONNX:  # which is of use to 'predict' only beside the bundle
            fix += "; or make it a run (mkdir RUN, and move the bundle to RUN/bundle), and export RUN"
        raise SeqloomError("E_USAGE", what, where=str(bundle), fix=fix)
    if place.is_dir() and any(place.iterdir()) and not any((place / name).is_file() for name in CARDS.values()):
        what = "this folder holds something else than an export, which would take its place"
        raise SeqloomError("E_USAGE", what, where=str(place), fix="name another")


def _write_ctranslate2(model: Model, folder: Path, quantise: str | None, weights: str) -> None:
    from seqloom.export import ctranslate2

    taken = taken_from(model, ctranslate2.places(model.network), quantise)
    with torch.no_grad():
        ctranslate2.write(model.network, spelled(model.codecs), folder, quantise)
    save_codecs(model.recipe, model.codecs, folder)
    about = {"seqloom": __version__, "weights": weights, "files": listed_files(folder), "taken": taken}
    card = EngineCard.model_validate({"format": EngineCard.FORMAT, **about})
    atomic_write(folder / CARD, cards.written(card))


def _write_onnx(model: Model, folder: Path, quantise: str | None, weights: str) -> None:
    from seqloom.export import onnx

    onnx.write(model.network, (len(model.source.vocabulary), len(model.target.vocabulary)), folder, weights)


def load_onnx(
    run: str | Path,
    *,
    threads: int | None = None,
    settings: Sequence[str] = (),
    device: str = "cpu",
    allow_nonfinite: bool = False,
) -> Model:
    """A run whose exported graphs ONNX Runtime steps; all else, search included, is the model's."""
    from seqloom.export.onnx import CARD, FIX, OnnxScorer

    folder = Path(run) / ONNX
    refuse_missing("onnxruntime")
    if device not in ("auto", "cpu"):
        raise SeqloomError("E_USAGE", f"--engine onnx runs on a CPU, not on {device}", fix="leave --device out")
    if not (folder / CARD).is_file():
        raise SeqloomError("E_BUNDLE", "this run was not exported yet", where=str(run), fix=FIX)
    scorer = OnnxScorer(folder, threads)
    refuse_stale(scorer.card.weights, folder)
    model = load(run, device="cpu", threads=threads, settings=settings, allow_nonfinite=allow_nonfinite)
    return replace(model, scorer=scorer)


def taken_from(model: Model, places: tuple[int | None, int | None], quantised: str | None) -> Taken:
    """What an engine takes from a model; `places` are the most tokens that can be read and said, the ends counted."""
    recipe, (read, said) = model.recipe, places
    beam, length = _search(recipe.search.strategy)
    limits = recipe.search.limits
    learned = model.about.get("sentences_per_line")
    return Taken(
        name=model.name,
        languages=recipe.languages.model_dump(mode="json"),
        quantised=quantised,
        parameters=parameters(model.network),
        source=recipe.source,
        target=None if recipe.model.one_vocabulary else recipe.target,
        extras={name: model.codecs.extras[name].settings for name in model.codecs.prefixes},
        beam=beam,
        length=length,
        limits=limits if said is None else limits.with_(max_length=min(said - 1, limits.max_length or said)),
        max_source=min(recipe.data.limits.max_source, (read or MOST_TOKENS) - 1),
        max_extra=min(recipe.data.limits.max_extra, MOST_TOKENS),
        sentences_per_line=learned if isinstance(learned, float) else None,
        calibration=model.calibration,
    )


def _search(strategy: Settings) -> tuple[int, Settings]:
    """The size of the recipe's beam and how it weighs lengths; a search of another kind becomes a greedy one."""
    if isinstance(strategy, BeamSettings) and kind_of(strategy) == "beam":
        return strategy.size, strategy.length
    return 1, BeamSettings().length
