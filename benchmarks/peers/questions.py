"""The questions, one row of the table each: a model, its sizes, and who contends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# Dropout on embeddings, sublayers, activations and attention weights, as not every peer can leave one of them out.
TRANSFORMER = {
    "kind": "transformer",
    "layers": 3,
    "width": 256,
    "feedforward": 1024,
    "heads": 4,
    "dropout": 0.1,
    "label_smoothing": 0.1,
}
LSTM = {
    "kind": "lstm",
    "embedding": 256,
    "encoder": 512,  # both directions together
    "width": 512,
    "feeding": True,
    "dropout": 0.1,
    "label_smoothing": 0.1,
}
WITHOUT_FEEDING = {**LSTM, "feeding": False}
CHARACTERS = {
    "kind": "lstm",
    "embedding": 128,
    "encoder": 512,
    "width": 256,
    "feeding": False,
    "dropout": 0.0,
    "label_smoothing": 0.0,
}
HALF = {**CHARACTERS, "encoder": 256}

OURS = "seqloom"
FIXED = "every output has exactly {length} tokens, the mean of the references: its end is forbidden before that"
NATURAL = "outputs end where the model ends them; all contenders run the same trained weights"

EARLY = "CTranslate2 used directly may end a search with its first output; seqloom has all of the beam end and ranks it"


@dataclass(frozen=True)
class Contender:
    """A name in the table, the file here that runs it, and a variant that this file knows."""

    name: str
    script: str
    variant: str = ""
    is_ours: bool = False


@dataclass(frozen=True)
class Question:
    what: str
    kind: Literal["train", "predict"]
    data: Literal["multi30k", "cmudict"]
    model: dict[str, Any]
    contenders: tuple[Contender, ...]
    tokens: int = 0
    rows: int = 0
    batch: int = 64
    beam: int = 5
    stop: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The figure that is compared: where outputs may differ in length, answers count and not their tokens."""
        return "sentences_per_second" if self.stop == NATURAL or self.batch == 1 else "tokens_per_second"

    @property
    def counted(self) -> str:
        """What the figures are."""
        if self.unit == "sentences_per_second":
            return "sentences per second"
        ends = "their ends counted" if self.kind == "train" else "their ends not counted"
        return f"real target tokens per second, {ends}, padding not"


SEQLOOM = Contender(OURS, "ours", is_ours=True)  # as it comes: trained in bf16 where the processor has it
SEQLOOM_WIDE = Contender("seqloom in float32", "ours", "float32", is_ours=True)
SEQLOOM_INT8 = Contender("seqloom --int8", "ours", "--int8", is_ours=True)
MARIAN = Contender("Hugging Face Marian", "marian")
EOLE = Contender("Eole", "eole")
OPENNMT = Contender("OpenNMT-py", "opennmt")
JOEYNMT = Contender("JoeyNMT", "joeynmt")
YOYODYNE = Contender("yoyodyne", "yoyodyne")
BARE = Contender("bare PyTorch loop", "bare")
CT2, CT2_INT8 = (Contender(f"CTranslate2 {kind}", "ctranslate2", kind) for kind in ("float32", "int8"))
ENGINE, ENGINE_INT8 = (
    Contender(f"seqloom --engine ctranslate2, {kind}", "ours", kind, is_ours=True) for kind in ("float32", "int8")
)

QUESTIONS = {
    "train-transformer": Question(
        "train a Transformer of 3 + 3 layers, 256 wide",
        "train",
        "multi30k",
        TRANSFORMER,
        (MARIAN, EOLE, OPENNMT, JOEYNMT, BARE, SEQLOOM, SEQLOOM_WIDE),
        tokens=4096,
        remarks=("Marian's batches have a fixed number of rows: as many as 4,096 tokens hold on average",),
    ),
    "train-lstm-feeding": Question(
        "train a bidirectional LSTM 2 x 256 and an LSTM 512 with attention and input feeding",
        "train",
        "multi30k",
        LSTM,
        (EOLE, OPENNMT, JOEYNMT, BARE, SEQLOOM, SEQLOOM_WIDE),
        tokens=4096,
    ),
    "train-lstm": Question(
        "train the same without input feeding",
        "train",
        "multi30k",
        WITHOUT_FEEDING,
        (EOLE, OPENNMT, JOEYNMT, BARE, SEQLOOM, SEQLOOM_WIDE),
        tokens=4096,
        remarks=("JoeyNMT loops over steps all the same",),
    ),
    "train-characters": Question(
        "train a bidirectional LSTM 2 x 256 and an LSTM 256 with attention on characters",
        "train",
        "cmudict",
        CHARACTERS,
        (YOYODYNE, JOEYNMT, BARE, SEQLOOM, SEQLOOM_WIDE),
        rows=512,
        remarks=("yoyodyne feeds the context into the recurrence, and its attention is additive",),
    ),
    "train-characters-half": Question(
        "train a bidirectional LSTM 2 x 128 and an LSTM 256 with attention on characters",
        "train",
        "cmudict",
        HALF,
        (EOLE, OPENNMT, BARE, SEQLOOM, SEQLOOM_WIDE),
        rows=512,
    ),
    "predict-beam": Question(
        "predict with the Transformer, batches of 64, beam 5",
        "predict",
        "multi30k",
        TRANSFORMER,
        (OPENNMT, EOLE, MARIAN, JOEYNMT, CT2, CT2_INT8, SEQLOOM, SEQLOOM_INT8),
        stop=FIXED,
    ),
    "predict-greedy": Question(
        "predict with the Transformer, batches of 64, greedily",
        "predict",
        "multi30k",
        TRANSFORMER,
        (OPENNMT, EOLE, MARIAN, JOEYNMT, CT2, CT2_INT8, SEQLOOM, SEQLOOM_INT8),
        beam=1,
        stop=FIXED,
    ),
    "predict-engine-beam": Question(
        "predict with one trained Transformer, batches of 64, beam 5",
        "predict",
        "multi30k",
        TRANSFORMER,
        (CT2, CT2_INT8, ENGINE, ENGINE_INT8, SEQLOOM),
        stop=NATURAL,
        remarks=(EARLY,),
    ),
    "predict-engine-greedy": Question(
        "predict with one trained Transformer, batches of 64, greedily",
        "predict",
        "multi30k",
        TRANSFORMER,
        (CT2, CT2_INT8, ENGINE, ENGINE_INT8, SEQLOOM),
        beam=1,
        stop=NATURAL,
    ),
    "predict-lstm": Question(
        "predict with the LSTM with input feeding, batches of 64, beam 5",
        "predict",
        "multi30k",
        LSTM,
        (OPENNMT, EOLE, JOEYNMT, YOYODYNE, SEQLOOM, SEQLOOM_INT8),
        stop=FIXED,
        remarks=("yoyodyne feeds the context into the recurrence, and its attention is additive",),
    ),
    "sentence": Question(
        "one sentence at a time with the Transformer, beam 5",
        "predict",
        "multi30k",
        TRANSFORMER,
        (MARIAN, OPENNMT, CT2_INT8, SEQLOOM, SEQLOOM_INT8),
        batch=1,
        stop=FIXED,
    ),
    "sentence-engine": Question(
        "one sentence at a time with one trained Transformer, beam 5",
        "predict",
        "multi30k",
        TRANSFORMER,
        (CT2_INT8, ENGINE_INT8, SEQLOOM),
        batch=1,
        stop=NATURAL,
        remarks=(EARLY,),
    ),
}
