"""Draw the README's picture from a trained demo: where a pronunciation model looks while it speaks.

seqloom demo && python docs/pictures.py demo/pronunciation/run
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import seqloom
from seqloom.probe.explain import AttentionMap

WORDS = ("spinningwheel", "threadweaver")  # in no dictionary: the model has to make them up
INK, PAPER = "#1f2430", "#ffffff"


def draw(axes: Axes, found: AttentionMap) -> None:
    """Letters across, phonemes down, each with its probability."""
    weights = found.mean  # T S
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(found.source)), [_shown(token) for token in found.source], fontsize=15)
    labels = [
        f"{_shown(token):>3}  {probability:>4.0%}"
        for token, probability in zip(found.output, found.probabilities, strict=True)
    ]
    axes.set_yticks(range(len(found.output)), labels, fontsize=13, family="monospace")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xticks([x - 0.5 for x in range(1, weights.shape[1])], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, weights.shape[0])], minor=True)
    axes.grid(which="minor", color="#e6e9ef", linewidth=1)
    axes.tick_params(which="minor", length=0)


def _shown(token: str) -> str:
    return "end" if token == "<eos>" else token


def main() -> None:
    model = seqloom.load(sys.argv[1])
    figure, places = plt.subplots(1, 2, figsize=(12.5, 4.9), dpi=130, facecolor=PAPER)
    for axes, word in zip(places, WORDS, strict=True):
        draw(axes, model.explain(word).map())
    figure.text(
        0.5,
        0.02,
        "letters it reads across, phonemes it writes down with their probability; the darker, the more it looks there",
        ha="center",
        color="#5b6270",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0.05, 1, 1), w_pad=3)
    figure.savefig(Path(__file__).with_name("attention.png"), facecolor=PAPER)


if __name__ == "__main__":
    main()
