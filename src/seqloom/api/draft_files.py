"""Source and model of a drafted recipe whose sources are files: arrays, pictures, sounds."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.api.commented import line
from seqloom.api.draft_labels import WHAT
from seqloom.api.draft_pairs import why_dropout
from seqloom.api.init import Choices
from seqloom.data.named import Files

ENCODERS = {
    "frames": ("rnn", "reads the frames both ways"),
    "pixels": ("cnn", "sees regions of the picture; patches: regions into a Transformer"),
    "sound": ("pyramid", "reads the sound both ways; every layer but the first halves the time"),
}


def source(files: Files) -> Iterator[str]:
    yield "source:"
    if files.kind == "frames":
        yield line("  kind: frames", "lines name .npy files of (time, features), relative to their own")
        yield line("  # rate: 100", "frames a second, where they are that: maps then show times; stack: 2 halves it")
    elif files.kind == "pixels":
        yield line("  kind: pixels", "lines name pictures, relative to their own file")
        yield line("  size: 64", "every picture becomes 64 x 64 pixels (fit: crop, pad or squash)")
        yield line("  region: 8", "of 8 x 8 regions that a model can look at")
        yield line("  augment: {shift: 0.05, brightness: 0.1}", "in training only; also flip, turn, zoom, contrast")
    else:
        yield line("  kind: sound", "lines name sounds (wav, flac, ogg, mp3), relative to their own file")
        yield line("  sample_rate: 16000", "every sound is brought to it; 8000 for the telephone")
        yield line("  stack: 2", "positions of 20 ms: half as many")
        yield line("  augment: {time_masks: 2, feature_masks: 2}", "parts of it are hidden in training (SpecAugment)")


def model(choices: Choices, files: Files) -> Iterator[str]:
    sizes = choices.sizes
    kind, why = ENCODERS[files.kind]
    yield line("model:", f"{sizes.width} wide suits {choices.examples}")
    if files.kind != "pixels":
        yield line(f"  source_embedding: {{width: {sizes.embedding}}}", "what the features are projected to")
    if choices.task == "transduce":
        yield f"  target_embedding: {{width: {sizes.embedding}}}"
    yield "  encoder:"
    yield line(f"    kind: {kind}", why)
    yield f"    width: {sizes.width}"
    if files.kind == "sound":
        yield "    layers: 2"
    if files.kind != "pixels":
        yield line(f"    dropout: {sizes.dropout}", why_dropout(choices))
    yield "  decoder:"
    if choices.task == "transduce":
        yield line("    kind: bahdanau", "looks back at the source at every step (attention)")
        yield f"    width: {sizes.width}"
    else:
        yield line(f"    kind: {choices.task}", WHAT[choices.task])
        yield line("    pooling: attention", "it learns where to look; others: mean, max, last")
    yield f"    dropout: {sizes.dropout}"
    if speaks(choices, files):
        yield line("  ctc: true", "the encoder also says the text by itself: that teaches it where what is heard")


def task(choices: Choices, files: Files) -> Iterator[str]:
    yield "task:"
    yield line("  label_smoothing: 0.1", "a little doubt at every step")
    if speaks(choices, files):
        yield line("  ctc: 0.3", "the share of the loss that is about what the encoder says by itself")


def outputs() -> Iterator[str]:
    """Of a sound whose text is written."""
    yield "search:"
    yield line("  strategy: {kind: beam, size: 5}", "the five best beginnings are followed")
    yield line("  ctc: 0.3", "what the encoder says by itself has a voice as well")
    yield "evaluation:"
    yield line("  metrics: [wer, cer, exact]", "wrong words, wrong letters, texts that are wholly right, in %")


def speaks(choices: Choices, files: Files) -> bool:
    """Is a text written of a sound?"""
    return files.kind == "sound" and choices.task == "transduce"
