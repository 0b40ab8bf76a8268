"""OpenNMT-py: its own training command, whose batches come in windows; its own translator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onmt.opts
import onmt.train_single
import torch
from onmt.bin.train import train
from onmt.constants import CorpusTask
from onmt.inference_engine import InferenceEnginePY
from onmt.utils.parse import ArgumentParser

from peers.onmt import ENDLESS, training
from peers.worker import Count, Job, Turns, job

PADDING = 1  # the second of its special tokens


def settings(job: Job) -> dict[str, Any]:
    files = {"path_src": str(job.file("train.source")), "path_tgt": str(job.file("train.target"))}
    return {
        "data": {"corpus": {**files, "transforms": [], "weight": 1}},
        "src_vocab": str(job.file("source.vocabulary")),
        "tgt_vocab": str(job.file("target.vocabulary")),
        "save_model": str(Path(job.scratch) / "model"),
        **training(job),
        "report_every": ENDLESS,
        **(transformer(job.model) if job.model["kind"] == "transformer" else lstm(job.model)),
    }


def transformer(sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "layers": sizes["layers"],
        "heads": sizes["heads"],
        "hidden_size": sizes["width"],
        "word_vec_size": sizes["width"],
        "transformer_ff": sizes["feedforward"],
        "attention_dropout": [sizes["dropout"]],
        "position_encoding": True,
        "share_vocab": True,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "param_init": 0.0,
        "param_init_glorot": True,
    }


def lstm(sizes: dict[str, Any]) -> dict[str, Any]:
    assert sizes["encoder"] == sizes["width"], "its encoder is as wide as its decoder"
    return {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "layers": 1,
        "hidden_size": sizes["width"],
        "word_vec_size": sizes["embedding"],
        "input_feed": int(sizes["feeding"]),
        "global_attention": "general",
    }


def count(made: tuple[dict[str, torch.Tensor], int]) -> Count:
    batch, _ = made
    target = batch["tgt"][:, 1:, 0].ne(PADDING)  # what follows the beginning
    tokens, real = int(target.sum()), int(batch["srclen"].sum())
    return Count(tokens, tokens + real, target.numel() + batch["src"].numel())


def train_in_turns(job: Job, turns: Turns) -> None:
    built = onmt.train_single.build_dynamic_dataset_iter

    def paced(*given: Any, task: str = CorpusTask.TRAIN, **others: Any) -> Any:
        made = built(*given, task=task, **others)
        return turns.paced(made, job.steps, count) if task == CorpusTask.TRAIN else made

    onmt.train_single.build_dynamic_dataset_iter = paced
    train(options(onmt.opts.train_opts, job, settings(job)))


def predict_in_turns(job: Job, turns: Turns) -> None:
    """With the weights of one step: where all outputs are equally long, others would be no faster."""
    train(
        options(
            onmt.opts.train_opts,
            job,
            {**settings(job), "batch_size": job.batch, "bucket_size": job.batch, "train_steps": 1},
        )
    )
    wishes = {
        "model": [str(Path(job.scratch) / "model_step_1.pt")],
        "src": str(job.file("test.source")),
        "output": str(Path(job.scratch) / "output"),
        "batch_type": "sents",
        "batch_size": job.batch,
        "beam_size": job.beam,
        "min_length": job.length,
        "max_length": job.length,
        "max_length_ratio": 0,
        "gpu": -1,
    }
    chosen = options(onmt.opts.translate_opts, job, wishes)
    ArgumentParser.validate_translate_opts(chosen)
    ArgumentParser._get_all_transform_translate(chosen)
    ArgumentParser._validate_transforms_opts(chosen)
    ArgumentParser.validate_translate_opts_dynamic(chosen)
    engine = InferenceEnginePY(chosen)

    def answer(window: list[list[str]]) -> int:
        """It cuts a list into batches of like lengths; single sentences come one by one."""
        asked = window if job.batch == 1 else [[line for batch in window for line in batch]]
        found = [said[0] for lines in asked for said in engine.infer_list(lines)[1]]
        return sum(len(text.split(" ")) for text in found)

    turns.serve(answer, job)


def options(kind: Any, job: Job, chosen: dict[str, Any]) -> Any:
    """What its command line would read from a file."""
    path = Path(job.scratch) / "settings.yaml"
    path.write_text(json.dumps(chosen))
    parser = ArgumentParser()
    kind(parser)
    return parser.parse_known_args(["-config", str(path)])[0]


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("OpenNMT-py", "torch"))
