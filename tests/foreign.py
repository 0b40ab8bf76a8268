"""Tiny models of other tools for the tests of `seqloom convert`: built by those tools where they are installed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
import torch

SENTENCES = {
    "source": [
        "a small boat waits at the old pier",
        "two children carry a basket of plums",
        "the baker opens his shop before dawn",
        "rain falls on the roof of the mill",
        "she writes a letter to her brother",
    ],
    "target": [
        "ein kleines Boot wartet am alten Steg",
        "zwei Kinder tragen einen Korb voll Pflaumen",
        "der Bäcker öffnet seinen Laden vor dem Morgen",
        "Regen fällt auf das Dach der Mühle",
        "sie schreibt ihrem Bruder einen Brief",
    ],
}
TRIED = [
    "the old baker waits",
    "two boats at the mill",
    "rain",
    "she carries plums to the pier before dawn",
    "a  letter,   unknown: żółw ﬁne",
]


def sentencepiece_model(side: str, size: int = 60) -> bytes:
    return sentencepiece_of(SENTENCES[side] * 20, size)


def sentencepiece_of(texts: Sequence[str], size: int = 60) -> bytes:
    """As such models are: NFKC, ▁ in front, `</s>` and `<unk>` of their own."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=out,
        vocab_size=size,
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    return out.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def randomised(module: torch.nn.Module, size: float = 0.5) -> None:
    """Norms and biases too: at their start, where they do nothing, they would hide mistakes."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in (one for one in module.parameters() if one.requires_grad):  # positions are no weights
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)


def huggingface_folder(folder: Path, *, same: bool = False, seed: int = 0, **changes: object) -> object:
    """A folder that transformers' own `save_pretrained` wrote; the model too."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    models = {side: sentencepiece_model("source" if same else side) for side in ("source", "target")}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    joined = dict.fromkeys(["</s>", "<unk>", *pieces_of(models["source"]), *pieces_of(models["target"]), ">>deu<<"])
    vocabulary = {piece: number for number, piece in enumerate([*joined, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    pad = vocabulary["<pad>"]
    settings: dict[str, object] = {
        "vocab_size": len(vocabulary),
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 64,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }
    torch.manual_seed(seed)
    model = MarianMTModel(MarianConfig(**{**settings, **changes})).eval()
    randomised(model)
    with torch.no_grad():
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
        model.final_logits_bias[0, 0] += 5.0  # outputs end now and then
    model.save_pretrained(folder)
    return model
