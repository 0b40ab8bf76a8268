"""What OpenNMT-py and Eole, its successor, are told in the same words."""

from __future__ import annotations

from typing import Any

from peers.worker import Job

ENDLESS = 10**9


def training(job: Job) -> dict[str, Any]:
    return {
        "batch_type": "tokens" if job.tokens else "sents",
        "batch_size": job.tokens or job.rows,
        "normalization": "tokens",
        "num_workers": 0,  # two cores are busy already
        "train_steps": ENDLESS,
        "valid_steps": ENDLESS,
        "save_checkpoint_steps": ENDLESS,
        "optim": "adam",
        "learning_rate": 5e-4,
        "max_grad_norm": 1.0,
        "label_smoothing": job.model["label_smoothing"],
        "dropout": [job.model["dropout"]],
    }
