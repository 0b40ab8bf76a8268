"""Eole: its own training command, whose batches come in windows; its own predictor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eole.train_single
import torch
from eole.config.run import PredictConfig, TrainConfig
from eole.constants import CorpusTask
from eole.inference_engine import InferenceEnginePY

from peers.onmt import ENDLESS, training
from peers.worker import Count, Job, Turns, job


def settings(job: Job) -> dict[str, Any]:
    files = {"path_src": str(job.file("train.source")), "path_tgt": str(job.file("train.target"))}
    is_transformer = job.model["kind"] == "transformer"
    return {
        "data": {"corpus": {**files, "transforms": [], "weight": 1}},
        "src_vocab": str(job.file("source.vocabulary")),
        "tgt_vocab": str(job.file("target.vocabulary")),
        "share_vocab": is_transformer,
        "report_every": ENDLESS,
        "model": transformer(job.model) if is_transformer else lstm(job.model),
        "training": {
            "model_path": str(Path(job.scratch) / "model"),
            **training(job),
            "attention_dropout": [job.model["dropout"]],
            "compute_dtype": "fp32",
            "world_size": 1,
            "gpu_ranks": [],
        },
    }


def transformer(sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "architecture": "transformer",
        "layers": sizes["layers"],
        "heads": sizes["heads"],
        "hidden_size": sizes["width"],
        "transformer_ff": sizes["feedforward"],
        "add_qkvbias": True,
        "add_ffnbias": True,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "embeddings": {
            "word_vec_size": sizes["width"],
            "position_encoding": True,
            "position_encoding_type": "SinusoidalInterleaved",
        },
    }


def lstm(sizes: dict[str, Any]) -> dict[str, Any]:
    assert sizes["encoder"] == sizes["width"], "its encoder is as wide as its decoder"
    return {
        "architecture": "rnn",
        "layers": 1,
        "hidden_size": sizes["width"],
        "input_feed": int(sizes["feeding"]),
        "encoder": {"encoder_type": "brnn"},
        "decoder": {"decoder_type": "rnn", "global_attention": "general"},
        "embeddings": {"word_vec_size": sizes["embedding"]},
    }


def train_in_turns(job: Job, turns: Turns) -> None:
    built = eole.train_single.build_dynamic_dataset_iter

    def paced(config: Any, transforms: Any, vocabs: Any, task: str = CorpusTask.TRAIN, **others: Any) -> Any:
        made = built(config, transforms, vocabs, task=task, **others)
        padding = vocabs["tgt"][config.pad_token]
        return turns.paced(made, job.steps, lambda batch: count(batch, padding)) if task == CorpusTask.TRAIN else made

    eole.train_single.build_dynamic_dataset_iter = paced
    eole.train_single.main(TrainConfig(**settings(job)), -1)


def count(made: tuple[dict[str, torch.Tensor], int], padding: int) -> Count:
    batch, _ = made
    target = batch["tgt"][:, 1:].ne(padding)  # what follows the beginning
    tokens, real = int(target.sum()), int(batch["srclen"].sum())
    return Count(tokens, tokens + real, target.numel() + batch["src"].numel())


def predict_in_turns(job: Job, turns: Turns) -> None:
    """With the weights of one step: where all outputs are equally long, others would be no faster."""
    chosen = settings(job)
    chosen["training"] |= {"batch_size": job.batch, "bucket_size": job.batch, "train_steps": 1}
    eole.train_single.main(TrainConfig(**chosen), -1)
    wishes = PredictConfig(
        model_path=[chosen["training"]["model_path"]],
        src=str(job.file("test.source")),
        output=str(Path(job.scratch) / "output"),
        batch_type="sents",
        batch_size=job.batch,
        beam_size=job.beam,
        min_length=job.length,
        max_length=job.length,
        max_length_ratio=0,
        compute_dtype="fp32",
        world_size=1,
        gpu_ranks=[],
    )
    engine = InferenceEnginePY(wishes)

    def answer(window: list[list[str]]) -> int:
        """It cuts a list into batches of like lengths; single sentences come one by one."""
        asked = window if job.batch == 1 else [[line for batch in window for line in batch]]
        found = [said[0] for lines in asked for said in engine.infer_list(lines)[2]]
        return sum(len(text.split(" ")) for text in found)

    turns.serve(answer, job)


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("eole", "torch"))
