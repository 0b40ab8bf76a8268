"""Hugging Face: its Marian model under its `Trainer`, and under its `generate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel, Trainer, TrainingArguments

from peers.worker import Count, Job, Turns, job

ENDLESS = 10**6  # steps; it plans its epochs
PAD, UNK, BOS, EOS = range(4)
IGNORED = -100
SPECIALS = 4


def network(job: Job) -> MarianMTModel:
    sizes = job.model
    sides = ("encoder", "decoder")
    config = MarianConfig(
        vocab_size=len(job.lines("source.vocabulary")) + SPECIALS,
        d_model=sizes["width"],
        **{f"{side}_layers": sizes["layers"] for side in sides},
        **{f"{side}_attention_heads": sizes["heads"] for side in sides},
        **{f"{side}_ffn_dim": sizes["feedforward"] for side in sides},
        dropout=sizes["dropout"],
        attention_dropout=sizes["dropout"],
        activation_dropout=sizes["dropout"],
        activation_function="relu",
        max_position_embeddings=256,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def reader(job: Job) -> Any:
    known = {piece: token for token, piece in enumerate(job.lines("source.vocabulary"), start=SPECIALS)}
    return lambda pieces: [*(known.get(piece, UNK) for piece in pieces), EOS]


def padded(rows: list[list[int]], filler: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    source, target = padded([row["input_ids"] for row in rows], PAD), padded([row["labels"] for row in rows], IGNORED)
    begun = torch.full_like(target[:, :1], BOS)
    return {
        "input_ids": source,
        "attention_mask": source.ne(PAD).long(),
        "decoder_input_ids": torch.cat([begun, target[:, :-1].masked_fill(target[:, :-1].eq(IGNORED), PAD)], dim=1),
        "labels": target,
    }


def count(batch: dict[str, torch.Tensor]) -> Count:
    tokens, real = int(batch["labels"].ne(IGNORED).sum()), int(batch["attention_mask"].sum())
    return Count(tokens, tokens + real, batch["labels"].numel() + batch["input_ids"].numel())


class Paced:
    """A data loader that hands its batches on in windows, over the borders of its epochs."""

    def __init__(self, loader: Any, turns: Turns, steps: int) -> None:
        self.loader = loader
        self.batches = turns.paced((batch for _ in range(ENDLESS) for batch in loader), steps, count)

    def __iter__(self) -> Iterator[Any]:
        return self.batches

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def train_in_turns(job: Job, turns: Turns) -> None:
    """Batches have a fixed number of rows there, of like lengths: as many as fill the budget on average."""

    class PacedTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return Paced(super().get_train_dataloader(), turns, job.steps)

    smoothing = job.model["label_smoothing"]

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        """Its own smoother goes over the logits more often than torch's loss does."""
        logits = outputs.logits.flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)

    read = reader(job)
    pairs = zip(job.pieces("train.source"), job.pieces("train.target"), strict=True)
    arguments = TrainingArguments(
        output_dir=job.scratch,
        per_device_train_batch_size=round(job.tokens / job.model["mean_longest"]),
        train_sampling_strategy="group_by_length",
        max_steps=ENDLESS,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = PacedTrainer(
        model=network(job),
        args=arguments,
        train_dataset=[{"input_ids": read(source), "labels": read(target)} for source, target in pairs],
        data_collator=collate,
        compute_loss_func=loss,
    )
    trainer.train()


def predict_in_turns(job: Job, turns: Turns) -> None:
    model, read = network(job).eval(), reader(job)

    @torch.inference_mode()
    def answer(window: list[list[str]]) -> int:
        tokens = 0
        for batch in window:
            source = padded([read(line.split(" ")) for line in batch], PAD)
            found = model.generate(
                input_ids=source,
                attention_mask=source.ne(PAD).long(),
                num_beams=job.beam,
                do_sample=False,
                min_new_tokens=job.length,
                max_new_tokens=job.length,
                bad_words_ids=[[PAD]],
            )
            tokens += found[:, 1:].numel()  # all are equally long; the first begins them
        return tokens

    turns.serve(answer, job)


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    (train_in_turns if job().kind == "train" else predict_in_turns)(job(), Turns("transformers", "accelerate", "torch"))
