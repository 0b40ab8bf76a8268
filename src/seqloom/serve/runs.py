"""The runs that are served: loaded at the start, found by name or by languages, loaded anew when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.api.load import find_bundle, load
from seqloom.api.model import Model
from seqloom.bundle import CARD
from seqloom.errors import SeqloomError, nearest
from seqloom.web.refusals import Refusal

Opened = Callable[[Path], Model]
Mark = tuple[int, int, int]  # of a card: when it was written, its size, its place on disk


@dataclass(frozen=True)
class Opening:
    """How every run is opened."""

    device: str = "auto"
    threads: int | None = None
    int8: bool = False

    def __call__(self, path: Path) -> Model:
        model = load(path, device=self.device, threads=self.threads, int8=self.int8)
        if model.codecs.source.settings.in_files:
            what = "this run reads pictures or sound from files, and a client's paths are not to be opened here"
            raise SeqloomError("E_USAGE", what, where=str(path), fix="serve runs that read text; 'predict' reads files")
        return model


@dataclass
class _Served:
    path: Path
    model: Model
    mark: Mark | None


class Runs:
    """Models by the names of their runs, in the order they were given."""

    def __init__(self, paths: Sequence[Path], opened: Opened) -> None:
        self._opened = opened
        self._served: dict[str, _Served] = {}
        self._heed: Callable[[], None] | None = None
        for path in paths:
            mark = marked(path)
            model = opened(path)
            if model.name in self._served:
                what = f"two runs are called {model.name!r}"
                raise SeqloomError("E_USAGE", what, where=str(path), fix="clients name runs: rename one of the folders")
            self._served[model.name] = _Served(path, model, mark)

    @property
    def models(self) -> list[Model]:
        return [served.model for served in self._served.values()]

    def heed(self, heed: Callable[[], None]) -> None:
        """Let every model ask this while it searches, also those that are loaded later."""
        self._heed = heed
        for model in self.models:
            model.heed = heed

    def model(self, name: str | None) -> Model:
        """The one of this name, or the first; E_VALUE where there is none."""
        if name is None:
            return self.models[0]
        if name not in self._served:
            known = ", ".join(self._served)
            raise Refusal("E_VALUE", f"model: no such run{nearest(name, self._served)}", fix=f"served here: {known}")
        return self._served[name].model

    def between(self, source: str, target: str) -> Model | None:
        """The first that reads and writes these languages."""
        return next((model for model in self.models if languages(model) == (source, target)), None)

    def changed(self) -> list[str]:
        """Names of those whose bundle is another than the one that was loaded."""
        return [name for name, served in self._served.items() if marked(served.path) not in (None, served.mark)]

    def reload(self, name: str) -> None:
        """Put what a run's bundle holds now in its model's place. Where that is nothing good, all stays as it is.

        A bundle that was refused is not tried again until it changes.
        """
        served = self._served[name]
        served.mark = marked(served.path)
        model = self._opened(served.path)
        model.heed = self._heed
        served.model = model


def languages(model: Model) -> tuple[str, str]:
    return model.recipe.languages.source, model.recipe.languages.target


def marked(path: Path) -> Mark | None:
    """What tells one bundle of a run from the next."""
    try:
        found = (find_bundle(path) / CARD).stat()
    except (OSError, SeqloomError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
