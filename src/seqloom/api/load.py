"""`seqloom.load("runs/x")`: a run or bundle folder becomes a `Model`, checked on the way in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from seqloom import runtime, weights, wording
from seqloom.api.assignments import full_keys
from seqloom.api.datasets import found_again
from seqloom.api.folder import members_in
from seqloom.api.model import Model
from seqloom.api.workers import Workers, usable
from seqloom.bundle import CARD, FIX, RECIPE, Bundle, open_bundle
from seqloom.config import kind_of, override, parse_yaml, read_yaml, validated
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import CODECS, Codecs
from seqloom.data.source import SourceCodec
from seqloom.errors import SeqloomError
from seqloom.metrics.calibration import Calibration
from seqloom.models.generator import Generator, GeneratorSettings, Network
from seqloom.models.model import MODELS, Ensemble
from seqloom.nn.packed import pack
from seqloom.recipe import Recipe, recipe_from
from seqloom.runtime import Runtime
from seqloom.wiring import build_model, joined_codecs


def find_bundle(path: str | Path) -> Path:
    """The bundle of a run folder, or the folder itself when it is one."""
    folder = Path(path)
    if not folder.exists():
        fix = "give a run folder such as runs/my-recipe"
        raise SeqloomError("E_FILE", "no such run or bundle", where=str(folder), fix=fix)
    if not folder.is_dir():
        raise SeqloomError("E_BUNDLE", "a run or bundle is a folder", where=str(folder))
    inner = folder / "bundle"
    if (inner / CARD).exists() or (folder / CARD).exists():
        return inner if (inner / CARD).exists() else folder
    if several := members_in(folder):
        fix = f"name one, such as {several[0]}; 'predict' and 'evaluate' take all as one model with --ensemble"
        raise SeqloomError("E_BUNDLE", f"a folder of {len(several)} runs", where=str(folder), fix=fix)
    return inner


def members(runs: Sequence[str | Path]) -> list[Path]:
    """The runs of an ensemble. A folder that `train --seeds` has filled stands for all runs in it."""
    return [member for run in runs for member in members_in(Path(run), ("seed-*",)) or [Path(run)]]


def load(
    run: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    settings: Sequence[str] = (),
    allow_nonfinite: bool = False,
    packed: bool = True,
    int8: bool = False,
    workers: int = 1,
) -> Model:
    """Open a run or bundle. `settings` are `key=value` over its recipe (those that leave the weights' shapes alone).

    `packed` weights make predictions on a CPU faster (`nn/packed.py`); whoever goes on to change them wants them plain.
    `int8` rounds them to 8 bits: faster again, and a little less exact. `workers` processes share what is to be
    predicted on a CPU, one thread each (`workers.py`); 0 means as many as there are threads.
    """
    read = opened(run, device=device, threads=threads, settings=settings, allow_nonfinite=allow_nonfinite)
    if read.recipe.model.ranks:
        what = f"this run ranks texts and writes none (model: {kind_of(read.recipe.model)})"
        fix = "it is for 'predict --top', 'evaluate', 'explain' and 'index'"
        raise SeqloomError("E_USAGE", what, where=str(run), fix=fix)
    assert isinstance(read.network, Generator)
    if int8 and read.device.type != "cpu":
        what = f"int8 is for a CPU, not for {read.device}"
        raise SeqloomError("E_USAGE", what, fix="leave int8 out, or set device cpu")
    if (packed or int8) and read.device.type == "cpu":
        pack(read.network, int8)
    told = (read.bundle.about, _calibration(read.bundle), read.device)
    staff = _workers(workers, read.device)
    return Model(read.name, read.recipe, read.codecs, read.network, *told, home=read.bundle.folder, workers=staff)


@dataclass(frozen=True)
class Opened:
    """A bundle that was read, of whatever kind its network is."""

    name: str
    bundle: Bundle
    recipe: Recipe
    codecs: Codecs
    network: Network
    device: torch.device


def opened(
    run: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    settings: Sequence[str] = (),
    allow_nonfinite: bool = False,
) -> Opened:
    """What `load` reads; the process is set up to predict."""
    wanted = validated(Runtime, {"device": device, "threads": threads, "tf32": False}, "device and threads")
    chosen = runtime.apply(wanted)
    bundle = open_bundle(find_bundle(run))
    recipe = bundle_recipe(bundle, settings, _run_data(bundle.folder))
    recipe = recipe.with_(data=found_again(recipe.data, bundle.folder.parent))
    codecs = load_codecs(recipe, bundle.folder)
    tensors = bundle.weights(allow_nonfinite)
    network = build_model(recipe, codecs, sum(4 * tensor.numel() for tensor in tensors.values()))
    weights.restore(network, tensors, str(bundle.folder))
    folder = Path(run)
    name = folder.parent.name if folder.name == "bundle" else folder.name
    return Opened(name, bundle, recipe, codecs, network, chosen)


def _workers(count: int, device: torch.device) -> Workers[Any, Any] | None:
    if count < 0:
        raise SeqloomError("E_USAGE", f"{count} workers: at least 1, or 0 for as many as there are threads")
    if device.type != "cpu":
        if count > 1:
            raise SeqloomError("E_USAGE", f"workers are for a CPU, not for {device}", fix="leave workers out")
        return None
    if count > runtime.MOST_THREADS:
        raise SeqloomError("E_USAGE", f"{count:,} workers", fix=f"at most {runtime.MOST_THREADS} here")
    if count > 1 and usable(count) == 1:
        raise SeqloomError("E_USAGE", "workers need a system that can fork (Linux)", fix="leave workers out")
    count = count or usable(torch.get_num_threads())
    return Workers(count) if count > 1 else None


def _calibration(bundle: Bundle) -> Calibration:
    try:
        return Calibration.model_validate(bundle.about.get("calibration") or {})
    except ValidationError as error:
        what = f"about.calibration: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where=str(bundle.folder / CARD), fix=FIX) from None


def _run_data(bundle: Path) -> object:
    """Where the data lies, as the run around a bundle knows it; the bundle itself tells file names only."""
    around, marks = bundle.parent / "recipe.yaml", bundle.parent / "data.json"
    return read_yaml(around).get("data") if around.is_file() and marks.is_file() else None


def bundle_recipe(bundle: Bundle, settings: Sequence[str] = (), data: object = None) -> Recipe:
    """The recipe that was trained, with `settings` over it and where the `data` lies now."""
    where = str(bundle.folder / RECIPE)
    try:
        raw = parse_yaml(bundle.recipe_text(), where)
        machine = raw.get("runtime") if isinstance(raw, dict) else None
        # A run may be trained in bf16; what it predicts depends on the source alone (law 4) only in float32.
        precise = {**(machine if isinstance(machine, dict) else {}), "precision": "float32"}
        raw = {**raw, "runtime": precise} if isinstance(raw, dict) else {}
        recipe = recipe_from(raw, where)
    except SeqloomError as error:  # nobody wrote it by hand
        raise SeqloomError("E_BUNDLE", error.what, where=error.where, fix=FIX) from None
    if data is None and not settings:
        return recipe
    raw = raw if data is None else {**raw, "data": data}
    return recipe_from(override(raw, full_keys(raw, settings, where)), where)


def load_codecs(recipe: Recipe, folder: Path) -> Codecs:
    """Every side's codec as it was trained; source and target are one and the same where the vocabulary is shared."""
    source = CODECS[kind_of(recipe.source)].load(recipe.source, folder / "source")
    target = source.as_text() if recipe.model.one_vocabulary else TextCodec.load(recipe.target, folder / "target")
    own = {name: settings for name, settings in recipe.extras.items() if not settings.shared}
    extras = {name: TextCodec.load(settings, folder / "extras" / name) for name, settings in own.items()}
    return joined_codecs(recipe, source, target, extras)


def save_codecs(recipe: Recipe, codecs: Codecs, folder: Path) -> None:
    """One folder per codec: `source`, `target` and `extras/NAME` where they are others."""
    sides: dict[str, SourceCodec] = {"source": codecs.source}
    if not recipe.model.one_vocabulary:
        sides["target"] = codecs.target
    own: dict[str, SourceCodec] = {
        f"extras/{name}": codecs.extras[name] for name, extra in recipe.extras.items() if not extra.shared
    }
    for name, codec in (sides | own).items():
        (folder / name).mkdir(parents=True)
        codec.save(folder / name)


def unlike(one: Codecs, other: Codecs) -> str:
    """Why probabilities of two models cannot be averaged or compared, in a few words; empty where they can."""
    copying = "only one of them copies words from the source" if one.copies != other.copies else ""
    return one.difference(other) or copying


def load_ensemble(
    runs: Sequence[str | Path],
    *,
    device: str = "auto",
    threads: int | None = None,
    settings: Sequence[str] = (),
    allow_nonfinite: bool = False,
    int8: bool = False,
    workers: int = 1,
) -> Model:
    """Several runs of one vocabulary as one model: their probabilities are averaged at every step.

    A folder of seeds stands for all of them.
    """
    if not runs:
        raise SeqloomError("E_USAGE", "an ensemble needs at least one run")
    paths = members(runs)
    models = [
        load(run, device=device, threads=threads, settings=settings, allow_nonfinite=allow_nonfinite, int8=int8)
        for run in paths
    ]
    first = models[0]
    for path, other in zip(paths[1:], models[1:], strict=True):
        if odd := unlike(first.codecs, other.codecs):
            what = f"{paths[0]} and {path} do not read and write alike: {odd}"
            fix = "train the members alike: the same data, text settings, seed of the split and kind of head"
            raise SeqloomError("E_BUNDLE", what, fix=fix)
    ensemble = Ensemble([model.network for model in models]).to(first.device).eval()
    name = "+".join(model.name for model in models)
    return Model(
        name,
        first.recipe,
        first.codecs,
        first.network,
        first.about,
        first.calibration,
        first.device,
        ensemble,
        workers=_workers(workers, first.device),
    )


def model_settings(run: str | Path) -> GeneratorSettings | None:
    """What the recipe of a run says of its model, by a quick look; None of what is no run, or a damaged one: that is
    for `load` to refuse."""
    folder = Path(run)
    place = next((one for one in (folder / "bundle", folder) if (one / CARD).is_file()), folder)
    try:
        model = MODELS.settings(read_yaml(place / RECIPE).get("model"))
    except (SeqloomError, ValueError):
        return None
    assert isinstance(model, GeneratorSettings)
    return model
