"""yoyodyne: its own data module and attentive LSTM under its own trainer, and under its beam search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from yoyodyne import data, models, special, trainers
from yoyodyne.models import modules

from peers.worker import Count, Job, Turns, job

ENDLESS = 10**9


def module(job: Job) -> data.DataModule:
    """Its files have two columns."""
    pairs = zip(job.lines("train.source"), job.lines("train.target"), strict=True)
    path = Path(job.scratch) / "train.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return data.DataModule(
        model_dir=job.scratch,
        train=str(path),
        source_sep=" ",
        target_sep=" ",
        tie_embeddings=False,
        batch_size=job.rows or job.batch,
    )


def network(job: Job, known: data.DataModule) -> models.BaseModel:
    sizes = job.model
    encoder = modules.LSTMEncoder(
        bidirectional=True,
        dropout=sizes["dropout"],
        embedding_size=sizes["embedding"],
        hidden_size=sizes["encoder"] // 2,
        layers=1,
    )
    return models.SoftAttentionLSTMModel(
        source_encoder=encoder,
        beam_width=job.beam if job.kind == "predict" else 1,
        compute_accuracy=False,
        decoder_dropout=sizes["dropout"],
        decoder_hidden_size=sizes["width"],
        decoder_layers=1,
        embedding_size=sizes["embedding"],
        label_smoothing=sizes["label_smoothing"],
        max_target_length=job.length or known.max_target_length,
        target_vocab_size=known.target_vocab_size,
        vocab_size=known.vocab_size,
    )


def count(batch: data.Batch) -> Count:
    source, target = ~batch.source.mask, ~batch.target.mask
    tokens, real = int(target.sum()), int(source.sum())
    return Count(tokens, tokens + real, target.numel() + source.numel())


class Paced:
    """Batches in windows, over the borders of epochs."""

    def __init__(self, loader: Any, turns: Turns, steps: int) -> None:
        self.loader, self.turns, self.steps = loader, turns, steps

    def __iter__(self) -> Iterator[Any]:
        return self.turns.paced((batch for _ in range(ENDLESS) for batch in self.loader), self.steps, count)


def train_in_turns(job: Job, turns: Turns) -> None:
    known = module(job)
    trainer = trainers.Trainer(
        accelerator="cpu",
        default_root_dir=job.scratch,
        max_steps=ENDLESS,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        limit_val_batches=0,
    )
    trainer.fit(network(job, known), Paced(known.train_dataloader(), turns, job.steps))


def predict_in_turns(job: Job, turns: Turns) -> None:
    known = module(job)
    model = network(job, known).eval()
    with torch.no_grad():
        model.classifier.bias[special.END_IDX] = -1e4  # it has no shortest length: outputs end at the longest
    mapper = data.mappers.Mapper(known.index)
    wrapped = known.parser.source_symbols

    @torch.inference_mode()
    def answer(window: list[list[str]]) -> int:
        tokens = 0
        for lines in window:
            rows = [mapper.encode_source(wrapped(line)) for line in lines]
            predictions, _ = model(data.Batch(data.PaddedTensor(rows)))
            tokens += int((predictions[:, 0, 1:] != special.PAD_IDX).sum())  # the first begins them
        return tokens

    turns.serve(answer, replace(job, steps=1))  # one batch takes longer than a window of others


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("yoyodyne", "lightning", "torch"))
