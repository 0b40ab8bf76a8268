"""seqloom, by its front door: `train` with an observer that keeps the turns, `load` and `load_engine` to predict."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from peers.worker import Job, Turns, job
from seqloom import load_engine
from seqloom.api.asked import Asked
from seqloom.interpreter import SOME, keep_memory

ENDLESS = 10**9
WIDE = 1_000_000  # tokens: a batch is as large as it was asked for
PADDED = 1.15  # what a batch is larger than its tokens
TOKENS = 4096  # of a batch, to train what predicts


def recipe(job: Job, training: dict[str, Any]) -> dict[str, object]:
    """The job as a recipe. The text is cut already."""
    sides = {
        side: {"tokenizer": "symbols", "vocabulary": {"file": str(job.file(f"{side}.vocabulary"))}}
        for side in ("source", "target")
    }
    is_transformer = job.model["kind"] == "transformer"
    batching = {"tokens": job.tokens or WIDE, **({"sentences": job.rows} if job.rows else {})}
    if is_transformer:  # one vocabulary for both
        sides["target"] = sides["source"]
    return {
        "data": {
            part: {side: str(job.file(f"{part}.{side}")) for side in ("source", "target")}
            for part in ("train", "dev", "test")
        },
        **sides,
        "model": transformer(job.model) if is_transformer else lstm(job.model),
        "task": {"label_smoothing": job.model["label_smoothing"]},
        "batching": batching,
        "training": {"optimiser": {"kind": "adam", "lr": 5e-4}, "validate_every": ENDLESS, **training},
        "evaluation": {"metrics": ["bleu"], "validate_examples": 0},
        "runtime": machine(job),
    }


def machine(job: Job) -> dict[str, object]:
    return {"device": "cpu", "threads": job.threads, "seed": 1}


def transformer(sizes: dict[str, Any]) -> dict[str, object]:
    stack = {
        "kind": "transformer",
        **{key: sizes[key] for key in ("width", "layers", "heads", "feedforward", "dropout")},
        "attention_dropout": sizes["dropout"],
        "activation_dropout": sizes["dropout"],
        "positions": "sinusoidal",
    }
    side = {"width": sizes["width"]}
    return {
        "source_embedding": side,
        "target_embedding": side,
        "shared": True,
        "tied": True,
        "encoder": stack,
        "decoder": stack,
    }


def lstm(sizes: dict[str, Any]) -> dict[str, object]:
    side = {"width": sizes["embedding"]}
    return {
        "source_embedding": side,
        "target_embedding": side,
        "encoder": {"width": sizes["encoder"], "dropout": sizes["dropout"]},
        "decoder": {
            "kind": "luong",
            "width": sizes["width"],
            "dropout": sizes["dropout"],
            "context": {"recurrence": "attentional" if sizes["feeding"] else "none"},
        },
    }


def trained(job: Job, folder: Path, steps: int) -> None:
    """A run for the questions about prediction, made once: a finished one is left as it is."""
    from seqloom.api.train import train
    from seqloom.recipe import recipe_from

    optimiser, schedule = {"kind": "adam", "lr": 2e-3}, {"kind": "cosine", "warmup": min(100, steps)}
    raw = recipe(replace(job, tokens=TOKENS), {"steps": steps, "optimiser": optimiser, "schedule": schedule})
    train(recipe_from(raw, "benchmark"), folder)


def train_in_turns(job: Job, turns: Turns) -> None:
    from seqloom.api.train import Wishes, train
    from seqloom.recipe import recipe_from
    from seqloom.training.events import Event, Logged, Started

    def observer(event: Event) -> None:
        if isinstance(event, Started):
            turns.begin()
        if isinstance(event, Logged):
            turns.hear(event.tokens, event.padding)

    raw = recipe(job, {"steps": ENDLESS, "log_every": job.steps})
    chosen = recipe_from({**raw, "runtime": {**machine(job), "precision": job.variant or "auto"}}, "benchmark")
    talk = Wishes(observers=[observer], tell=lambda line: print(line, file=sys.stderr))
    train(chosen, Path(job.scratch) / "run", wishes=talk)


def predict_in_turns(job: Job, turns: Turns) -> None:
    """A window's batches at once, so that every worker has some. Memory is kept as `seqloom predict` keeps it."""
    keep_memory(SOME)
    wishes: dict[str, object] = {"beam": job.beam, "split": False}
    if job.length is not None:
        wishes |= {"min_length": job.length, "max_length": job.length}
    is_int8 = job.variant == "--int8"
    where = {"device": "cpu", "threads": job.threads}
    if job.variant and not is_int8:
        model: Any = load_engine(Path(job.bundle) / f"ctranslate2-{job.variant}", **where)
        kind: Any = Asked
    else:
        from seqloom.api.load import load
        from seqloom.api.options import Options

        model, kind = load(job.bundle, **where, int8=is_int8, workers=0), Options

    def answer(window: list[list[str]]) -> int:
        if job.batch == 1:
            return sum(len(model(batch[0], **wishes).tokens) for batch in window)
        texts = [text for batch in window for text in batch]
        tokens = sum(text.count(" ") + 2 for text in texts) / len(window)
        asked = kind.model_validate({**wishes, "batch_tokens": round(PADDED * tokens)})
        return sum(len(one.tokens) for one in model.predict(texts, asked, len(texts)))

    turns.serve(answer, job)


if __name__ == "__main__":
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("seqloom", "torch"))
