"""`seqloom.export_run("runs/x")`: a trained model for another library to run, with all that it needs to answer."""

from __future__ import annotations

from pathlib import Path

from seqloom import __version__
from seqloom.api.engine import ENGINE, Card, spelled
from seqloom.api.load import load, save_codecs
from seqloom.api.model import Model
from seqloom.config import Settings, kind_of
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder
from seqloom.recipe import parameters
from seqloom.search.beam import BeamSettings

QUANTISED = ("int8", "int16", "float16", "bfloat16")  # how weights may be kept, besides float32


def export_run(run: str | Path, folder: str | Path | None = None, quantise: str | None = None) -> Path:
    """Write a run's model as CTranslate2 runs it; by default into the run, where `predict --engine` looks for it."""
    try:
        import ctranslate2.specs  # noqa: F401
    except ImportError:
        fix = "pip install 'seqloom[export]'"
        raise SeqloomError("E_EXTRA", "ctranslate2 is not installed", where="--to ctranslate2", fix=fix) from None
    from seqloom.export import ctranslate2 as writer

    if quantise is not None and quantise not in QUANTISED:
        what = f"weights cannot be kept as {quantise!r}"
        raise SeqloomError("E_USAGE", what, where="--quantise", fix=f"one of: {', '.join(QUANTISED)}")
    model = load(run, device="cpu")
    place = Path(run) / ENGINE if folder is None else Path(folder)
    card = card_of(model, writer.places(model.network), quantise)
    with atomic_folder(place) as unfinished:
        writer.write(model.network, spelled(model.codecs), unfinished, quantise)
        save_codecs(model.recipe, model.codecs, unfinished)
        card.save(unfinished)
    return place


def card_of(model: Model, places: tuple[int | None, int | None], quantised: str | None) -> Card:
    """`places` are the most tokens that can be read and said, the ends counted."""
    recipe, (read, said) = model.recipe, places
    beam, length = _search(recipe.search.strategy)
    limits = recipe.search.limits
    learned = model.about.get("sentences_per_line")
    return Card(
        seqloom=__version__,
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
        max_source=min(recipe.data.limits.max_source, (read or 1_000_000) - 1),
        max_extra=recipe.data.limits.max_extra,
        sentences_per_line=learned if isinstance(learned, float) else None,
        calibration=model.calibration,
    )


def _search(strategy: Settings) -> tuple[int, Settings]:
    """The size of the recipe's beam and how it weighs lengths; a search of another kind becomes a greedy one."""
    if isinstance(strategy, BeamSettings) and kind_of(strategy) == "beam":
        return strategy.size, strategy.length
    return 1, BeamSettings().length
