"""seqloom: from paired sequences to a model you can see inside of.

    model = seqloom.load("runs/my-run")
    model("text")                       # one text in, one prediction out; lists in, lists out
    run = seqloom.train("recipe.yaml")  # a run folder with the best bundle in it

Importing the package costs nothing: torch is loaded by the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.api.bench import bench
    from seqloom.api.compare import compare
    from seqloom.api.convert import convert
    from seqloom.api.distill import Distillation, distill
    from seqloom.api.engine import Engine, load_engine
    from seqloom.api.evaluate import RunEvaluation, evaluate, evaluate_files
    from seqloom.api.export import export_run
    from seqloom.api.fusion import fuse
    from seqloom.api.lexicon import learn_lexicon
    from seqloom.api.load import load, load_ensemble
    from seqloom.api.many import train_many
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.api.predictions import Prediction
    from seqloom.api.ranking import evaluate_ranking
    from seqloom.api.retriever import Retriever, load_retriever
    from seqloom.api.train import Run, train
    from seqloom.errors import SeqloomError

__version__ = "0.1.0"

_HOMES = {
    "bench": "seqloom.api.bench",
    "compare": "seqloom.api.compare",
    "convert": "seqloom.api.convert",
    "distill": "seqloom.api.distill",
    "Distillation": "seqloom.api.distill",
    "Engine": "seqloom.api.engine",
    "load_engine": "seqloom.api.engine",
    "evaluate": "seqloom.api.evaluate",
    "evaluate_files": "seqloom.api.evaluate",
    "RunEvaluation": "seqloom.api.evaluate",
    "export_run": "seqloom.api.export",
    "fuse": "seqloom.api.fusion",
    "train_many": "seqloom.api.many",
    "learn_lexicon": "seqloom.api.lexicon",
    "load": "seqloom.api.load",
    "load_ensemble": "seqloom.api.load",
    "Model": "seqloom.api.model",
    "Options": "seqloom.api.options",
    "Prediction": "seqloom.api.predictions",
    "evaluate_ranking": "seqloom.api.ranking",
    "Retriever": "seqloom.api.retriever",
    "load_retriever": "seqloom.api.retriever",
    "Run": "seqloom.api.train",
    "train": "seqloom.api.train",
    "SeqloomError": "seqloom.errors",
}

__all__ = [
    "Distillation",
    "Engine",
    "Model",
    "Options",
    "Prediction",
    "Retriever",
    "Run",
    "RunEvaluation",
    "SeqloomError",
    "bench",
    "compare",
    "convert",
    "distill",
    "evaluate",
    "evaluate_files",
    "evaluate_ranking",
    "export_run",
    "fuse",
    "learn_lexicon",
    "load",
    "load_engine",
    "load_ensemble",
    "load_retriever",
    "train",
    "train_many",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "reply":  # a part of its own: `seqloom.reply.load(...)`
        return import_module("seqloom.reply")
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
