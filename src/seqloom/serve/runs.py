"""The runs that are served: loaded at the start, found by name or by languages, loaded anew when they change.

Most write an answer. Some read pictures or sound, which clients send as files and never name by a path; some rank given
texts. Who asks for a run says what it is asked for, so that none is asked for what it cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.api.load import find_bundle, load
from seqloom.api.model import Model
from seqloom.api.retriever import Retriever, load_retriever, ranks
from seqloom.bundle import CARD
from seqloom.errors import SeqloomError, nearest
from seqloom.serve.kept import Kept, Mark, Reloadable, mark_of
from seqloom.web.refusals import Refusal


@dataclass(frozen=True)
class Loaded:
    """A run in memory: one of both."""

    writer: Model | None = None
    ranker: Retriever | None = None

    @property
    def name(self) -> str:
        one = self.writer or self.ranker
        assert one is not None
        return one.name


Opened = Callable[[Path], Loaded]


@dataclass(frozen=True)
class Opening:
    """How every run is opened."""

    device: str = "auto"
    threads: int | None = None
    int8: bool = False

    def __call__(self, path: Path) -> Loaded:
        if ranks(path):
            ranker = load_retriever(path, device=self.device, threads=self.threads)
            ranker.index  # noqa: B018 - one without an index is refused now, not at the first request
            return Loaded(ranker=ranker)
        return Loaded(load(path, device=self.device, threads=self.threads, int8=self.int8))


class Runs:
    """Models by the names of their runs, in the order they were given."""

    def __init__(self, paths: Sequence[Path], opened: Opened) -> None:
        self._opened = opened
        self._served: dict[str, Kept[Loaded]] = {}
        self._heed: Callable[[], None] | None = None
        for path in paths:
            kept = Kept(path, self._open, marked)
            name = kept.loaded.name
            if name in self._served:
                what = f"two runs are called {name!r}"
                raise SeqloomError("E_USAGE", what, where=str(path), fix="clients name runs: rename one of the folders")
            self._served[name] = kept

    def _open(self, path: Path) -> Loaded:
        loaded = self._opened(path)
        if loaded.writer is not None:
            loaded.writer.heed = self._heed
        return loaded

    @property
    def names(self) -> list[str]:
        return list(self._served)

    @property
    def loaded(self) -> list[tuple[Path, Loaded]]:
        """Every run, and where it lies."""
        return [(served.path, served.loaded) for served in self._served.values()]

    @property
    def models(self) -> list[Model]:
        """Those that write, whatever they read."""
        return [loaded.writer for _, loaded in self.loaded if loaded.writer is not None]

    @property
    def translators(self) -> list[Model]:
        """Those that read texts and write: what clients of LibreTranslate know."""
        return [model for model in self.models if not model.codecs.source.settings.in_files]

    def heed(self, heed: Callable[[], None]) -> None:
        """Let every model ask this while it searches, also those that are loaded later."""
        self._heed = heed
        for model in self.models:
            model.heed = heed

    def model(self, name: str | None, files: bool = False) -> Model:
        """The one of this name, or the first; E_VALUE where there is none that reads texts (or `files`)."""
        found = self._find(name).writer
        if found is None:
            raise Refusal("E_VALUE", "model: this run ranks texts and writes none", fix="ask /v1/rank")
        if found.codecs.source.settings.in_files and not files:
            what = "model: this run reads files, and a client's paths are not opened here"
            raise Refusal("E_VALUE", what, fix="send the file to /v1/predict/file or /v1/explain/file")
        if files and not found.codecs.source.settings.in_files:
            raise Refusal("E_VALUE", "model: this run reads texts, no files", fix="ask /v1/predict or /v1/explain")
        return found

    def ranker(self, name: str | None) -> Retriever:
        """The same of those that rank texts."""
        found = self._find(name).ranker
        if found is None:
            raise Refusal("E_VALUE", "model: this run writes texts and ranks none", fix="ask /v1/predict")
        return found

    def _find(self, name: str | None) -> Loaded:
        if not self._served:
            raise Refusal("E_VALUE", "model: no run is served here", fix="ask /v1/reply")
        chosen = self.names[0] if name is None else name
        if chosen not in self._served:
            known = ", ".join(self._served)
            raise Refusal("E_VALUE", f"model: no such run{nearest(chosen, self._served)}", fix=f"served here: {known}")
        return self._served[chosen].loaded

    def between(self, source: str, target: str) -> Model | None:
        """The first that reads and writes texts of these languages."""
        return next((model for model in self.translators if languages(model) == (source, target)), None)

    @property
    def kept(self) -> list[tuple[str, Reloadable]]:
        """Every run by its name, to be watched and loaded anew."""
        return list(self._served.items())


def languages(model: Model) -> tuple[str, str]:
    return model.recipe.languages.source, model.recipe.languages.target


def marked(path: Path) -> Mark | None:
    """What tells one bundle of a run from the next."""
    try:
        return mark_of(find_bundle(path) / CARD)
    except SeqloomError:
        return None
