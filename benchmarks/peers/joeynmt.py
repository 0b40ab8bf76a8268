"""JoeyNMT: its own training function, whose batches come in windows; its own search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joeynmt.training
import torch
from joeynmt.config import parse_global_args
from joeynmt.data import load_data
from joeynmt.datasets import BaseDataset
from joeynmt.model import build_model
from joeynmt.search import search

from peers.worker import Count, Job, Turns, job

ENDLESS = 10**9


def settings(job: Job) -> dict[str, Any]:
    return {
        "name": "benchmark",
        "model_dir": str(Path(job.scratch)),
        "use_cuda": False,
        "random_seed": 1,
        "data": {
            "train": str(job.file("train")),
            "dev": str(job.file("dev")),
            "dataset_type": "plain",
            "src": {"lang": "source", "level": "word", "voc_file": str(job.file("source.vocabulary"))},
            "trg": {"lang": "target", "level": "word", "voc_file": str(job.file("target.vocabulary"))},
        },
        "training": {
            "batch_size": job.tokens or job.rows or 1,
            "batch_type": "token" if job.tokens else "sentence",
            "normalization": "tokens",
            "optimizer": "adam",
            "learning_rate": 5e-4,
            "learning_rate_min": 0.0,
            "scheduling": "exponential",  # one of them must be given; this one acts between epochs
            "clip_grad_norm": 1.0,
            "label_smoothing": job.model["label_smoothing"],
            "epochs": ENDLESS,
            "logging_freq": ENDLESS,
            "validation_freq": ENDLESS,
        },
        "testing": {},
        "model": transformer(job.model) if job.model["kind"] == "transformer" else lstm(job.model),
    }


def transformer(sizes: dict[str, Any]) -> dict[str, Any]:
    stack = {
        "type": "transformer",
        "num_layers": sizes["layers"],
        "num_heads": sizes["heads"],
        "hidden_size": sizes["width"],
        "ff_size": sizes["feedforward"],
        "dropout": sizes["dropout"],
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": sizes["width"], "scale": True, "dropout": sizes["dropout"]},
    }
    return {
        "tied_embeddings": True,
        "tied_softmax": True,
        "initializer": "xavier_uniform",
        "encoder": stack,
        "decoder": stack,
    }


def lstm(sizes: dict[str, Any]) -> dict[str, Any]:
    side = {
        "type": "recurrent",
        "rnn_type": "lstm",
        "num_layers": 1,
        "embeddings": {"embedding_dim": sizes["embedding"], "dropout": sizes["dropout"]},
    }
    attention = {"attention": "luong", "input_feeding": sizes["feeding"], "hidden_dropout": sizes["dropout"]}
    return {
        "encoder": {**side, "bidirectional": True, "hidden_size": sizes["encoder"] // 2},
        "decoder": {**side, **attention, "hidden_size": sizes["width"], "init_hidden": "bridge"},
    }


class Paced:
    """A data loader that hands its batches on in windows, over the borders of its epochs."""

    def __init__(self, loader: Any, turns: Turns, steps: int) -> None:
        self.batch_sampler = loader.batch_sampler
        self.batches = turns.paced((batch for _ in range(ENDLESS) for batch in loader), steps, count)

    def __iter__(self) -> Iterator[Any]:
        return self.batches


def count(batch: Any) -> Count:
    tokens, real = batch.ntokens, int(batch.src_length.sum())
    return Count(tokens, tokens + real, batch.trg.numel() + batch.src.numel())


def train_in_turns(job: Job, turns: Turns) -> None:
    make_iter = BaseDataset.make_iter

    def paced(data: BaseDataset, *given: Any, **others: Any) -> Any:
        return Paced(make_iter(data, *given, **others), turns, job.steps)

    BaseDataset.make_iter = paced
    joeynmt.training.train(0, 1, settings(job), skip_test=True)


def predict_in_turns(job: Job, turns: Turns) -> None:
    config = parse_global_args(settings(job), mode="train")
    source, target, _, _, stream = load_data(config.data, datasets=["stream"])
    model = build_model(config.model, source, target)
    model.eval()

    def answer(window: list[list[str]]) -> int:
        """What its `predict` does, but that one keeps the shortest length to itself."""
        tokens = 0
        for lines in window:
            for line in lines:
                stream.set_item(line)
            made = stream.make_iter(len(lines), pad_index=model.pad_index, eos_index=model.eos_index)
            for batch in made:
                batch.sort_by_src_length()
                output, _, _ = search(
                    model=model,
                    batch=batch,
                    beam_size=job.beam,
                    beam_alpha=1.0,
                    min_output_length=job.length,
                    max_output_length=job.length,
                    n_best=1,
                    return_attention=False,
                    return_prob="none",
                    generate_unk=True,
                    repetition_penalty=-1,
                    no_repeat_ngram_size=-1,
                    autocast=config.autocast,
                )
                said = model.trg_vocab.arrays_to_sentences(output, cut_at_eos=True)
                tokens += sum(map(len, said))
            stream.reset_cache()
        return tokens

    turns.serve(answer, job)


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("joeynmt", "torch"))
