"""What was ordered of `seqloom predict`: who is to answer, and how. An order is plain values; `job` opens the model.

So that the same order can be filled here, or by processes on other machines (`--engine ray`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.answers import CloseLook, Job
from seqloom.cli.extras import given_extras, refuse_missing
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.asked import Asked
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.data.codecs import Codecs
    from seqloom.data.files import BadUtf8
    from seqloom.data.inputs import InputForm

OPTIONS = {"groups": "--diverse", "banned": "--ban", "risk": "--mbr"}  # those that are called otherwise on the line


@dataclass(frozen=True)
class Who:
    """Who answers: runs, together or alone, with which library."""

    runs: tuple[str, ...]
    ranked: bool = False  # a run that ranks texts
    engine: str | None = None  # another library; none: seqloom itself
    ensemble: bool = False
    fuse: Path | None = None
    fuse_weight: float | None = None
    int8: bool = False
    index: Path | None = None

    def absolute(self) -> Who:
        """The same for processes that may work elsewhere."""
        runs = tuple(str(Path(run).absolute()) for run in self.runs)
        return replace(
            self, runs=runs, fuse=self.fuse and self.fuse.absolute(), index=self.index and self.index.absolute()
        )


@dataclass(frozen=True)
class Order:
    """Who answers what, in which form; `how` are the keywords of `load`."""

    who: Who
    how: Mapping[str, Any]
    wishes: Mapping[str, object]
    form: str
    on_bad_utf8: BadUtf8
    extra: tuple[str, ...] = ()
    records: bool = False
    of_texts: bool = False  # of the command line, and not lines
    alternatives: int | None = None
    stream: bool = False
    quiet: bool = False
    workers: int = 1
    top: int = 1

    def job(self) -> Job[Any]:
        """Open the model; what it cannot be asked is said before anything is read."""
        if self.who.ranked:
            return self._ranking()
        return self._exported() if self.who.engine == "ctranslate2" else self._own()

    def close_look(self) -> CloseLook:
        model, options = self.opened()
        return CloseLook(model, options, self.form, self._input_form(model.codecs))

    def _ranking(self) -> Job[Any]:
        from seqloom.api.retriever import load_retriever

        wanted = _asked({"n_best": self.top, "split": False, "on_long": self.wishes["on_long"]})
        retriever = load_retriever(self.who.runs[0], index=self.who.index, **self.how)
        retriever.asking(wanted)
        return Job(retriever, wanted, self.form, self.on_bad_utf8, self.quiet, self._input_form(retriever.codecs))

    def _own(self) -> Job[Any]:
        return self.job_of(*self.opened())

    def job_of(self, model: Model, options: Options) -> Job[Options]:
        return Job(model, options, self.form, self.on_bad_utf8, self.quiet, self._input_form(model.codecs))

    def opened(self) -> tuple[Model, Options]:
        """The model, and what it is asked; E_USAGE for what cannot be met."""
        options, model = _options(self.wishes), self._model()
        model.asking(options)
        return model, options

    def _exported(self) -> Job[Any]:
        from seqloom.api.engine import load_engine

        who, how = self.who, self.how
        native: dict[str, object] = {"--ensemble": who.ensemble, "--fuse": who.fuse, "--stream": self.stream}
        native |= {"--alternatives": self.alternatives, "--set": how["settings"]}
        native |= {"--allow-nonfinite": how["allow_nonfinite"]}
        wanted = _engine_options("ctranslate2", self.wishes, [name for name, given in native.items() if given])
        told = self.form == "jsonl"
        exported = load_engine(who.runs[0], device=how["device"], threads=how["threads"], told=told)
        exported.asking(wanted)
        return Job(exported, wanted, self.form, self.on_bad_utf8, self.quiet, self._input_form(exported.codecs))

    def _model(self) -> Model:
        who, how = self.who, dict(self.how)
        if who.engine == "onnx":
            if who.ensemble or who.fuse is not None:
                what = f"--engine onnx cannot do: {'--ensemble' if who.ensemble else '--fuse'}"
                raise SeqloomError("E_USAGE", what, fix="leave it out, or predict without --engine")
            from seqloom.api.export import load_onnx

            return load_onnx(who.runs[0], **how)
        from seqloom.api.load import load, load_ensemble

        how |= {"int8": True} if who.int8 else {}
        own = {**how, "workers": self.workers}
        model = load_ensemble(who.runs, **own) if who.ensemble else load(who.runs[0], **own)
        if who.fuse is None:
            return model
        from seqloom.api.fusion import fuse as fused

        other = load(who.fuse, **{name: value for name, value in how.items() if name != "settings"})
        return fused(model, other, 0.3 if who.fuse_weight is None else who.fuse_weight)

    def _input_form(self, codecs: Codecs) -> InputForm:
        """How sources and extras are told; E_USAGE for an extra that the model does not know, or that nobody gives."""
        from seqloom.data.inputs import InputForm

        form = InputForm(list(codecs.extras), given_extras(codecs, self.extra), self.records, codecs.source)
        if self.of_texts and self.records:
            raise SeqloomError("E_USAGE", "--json-input is for lines of a file, and --text is one text")
        if self.of_texts:
            refuse_missing(form.columns[1:])
        return form


def _options(wishes: Mapping[str, object]) -> Options:
    from seqloom.api.options import Options
    from seqloom.config import validated

    try:
        return validated(Options, wishes, "options")
    except SeqloomError as error:
        raise SeqloomError("E_USAGE", error.what, fix="'seqloom predict --help' shows how") from None


def _engine_options(engine: str, wishes: Mapping[str, object], native: list[str]) -> Asked:
    """What another library can be asked; E_USAGE names what only our own search can do."""
    from seqloom.api.asked import Asked

    asked = {name: wish for name, wish in wishes.items() if wish not in (None, False, 0.0, "", [], ())}
    strategy = asked.pop("strategy", None)
    if strategy == {"kind": "greedy"}:
        asked["beam"] = 1
    elif strategy is not None:
        native.append("--sample")
    native += [OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in asked if name not in Asked.model_fields]
    if native:
        what = f"--engine {engine} cannot do: {', '.join(native)}"
        raise SeqloomError("E_USAGE", what, fix="leave it out, or predict without --engine")
    return _asked(asked)


def _asked(wishes: dict[str, object]) -> Asked:
    from seqloom.api.asked import Asked
    from seqloom.config import validated

    try:
        return validated(Asked, wishes, "options")
    except SeqloomError as error:
        raise SeqloomError("E_USAGE", error.what, fix="'seqloom predict --help' shows how") from None
