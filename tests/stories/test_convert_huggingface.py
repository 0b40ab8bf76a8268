"""`seqloom convert` and Hugging Face's Marian: the bundle says what transformers says, with transformers' own model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from foreign import TRIED, huggingface_folder
from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.specials import BOS, EOS, MASK, PAD, SEP

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")


def tokenizer_of(folder: Path) -> Any:
    return transformers.MarianTokenizer.from_pretrained(str(folder))


def log_probs(network: Generator, read: list[int], said: list[int]) -> torch.Tensor:
    """Of every id after each of these tokens, BOS first."""
    state = network.start({"source": Tokens.pad([[*read, EOS]])}, 1)
    features, state = network.decoder(torch.tensor([[BOS, *said]]), state)
    return network.head.log_probs(features, state)[0]


VARIANTS = {
    "one vocabulary, two sentencepiece models": {},
    "one sentencepiece model": {"same": True},
    "relu, embeddings as they are": {"activation_function": "relu", "scale_embedding": False},
    "a start that is a piece": {"decoder_start_token_id": 5},
    "a start that is the end": {"decoder_start_token_id": 0},
    "untied output": {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_probabilities_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    theirs: Any = huggingface_folder(tmp_path / "hf", **VARIANTS[variant])
    made = seqloom.convert(tmp_path / "hf", tmp_path / "ours")
    model, tokenizer = seqloom.load(made.folder, packed=False), tokenizer_of(tmp_path / "hf")
    start = theirs.config.decoder_start_token_id
    pieces = {**{piece: number for number, piece in enumerate(model.target.vocabulary.ordinary, 6)}, "</s>": EOS}
    pieces["<unk>"] = 1
    for text in TRIED:
        read = tokenizer(text, return_tensors="pt").input_ids
        own = model.source.encode(text)
        assert [tokenizer.convert_ids_to_tokens(int(one)) for one in read[0][:-1]] == [
            "<unk>" if one == 1 else model.source.vocabulary.piece(one) for one in own
        ]
        said = [8, 17, 9, 30]
        names = [tokenizer.convert_ids_to_tokens(one) for one in said]
        logits = theirs(input_ids=read, decoder_input_ids=torch.tensor([[start, *said]])).logits[0]
        expected = torch.log_softmax(logits, -1)
        found = log_probs(model.network, own, [pieces[name] for name in names])
        for theirs_id in range(theirs.config.vocab_size):
            name = tokenizer.convert_ids_to_tokens(theirs_id)
            ours_id = BOS if theirs_id == start == theirs.config.pad_token_id else pieces.get(name, PAD)
            torch.testing.assert_close(found[:, ours_id], expected[:, theirs_id], atol=1e-4, rtol=1e-4)
        assert float(found[:, [MASK, SEP]].exp().sum()) == 0.0  # what transformers cannot say
        torch.testing.assert_close(found.exp().sum(-1), torch.ones(5), atol=1e-4, rtol=0)


BEAMS: list[dict[str, object]] = [
    {"num_beams": 1},
    {"num_beams": 4, "early_stopping": True},
    {"num_beams": 4, "early_stopping": False, "length_penalty": 0.8},
    {"num_beams": 6},
]


@pytest.mark.parametrize("beam", BEAMS, ids=str)
@torch.no_grad()
def test_beams_say_what_transformers_says(beam: dict[str, object], tmp_path: Path) -> None:
    theirs: Any = huggingface_folder(tmp_path / "hf")
    banned = [[theirs.config.pad_token_id]]
    theirs.generation_config.update(max_length=24, bad_words_ids=banned, **beam)
    theirs.generation_config.save_pretrained(tmp_path / "hf")
    tokenizer = tokenizer_of(tmp_path / "hf")
    model = seqloom.load(seqloom.convert(tmp_path / "hf", tmp_path / "ours").folder)
    ended = 0
    for text in [*TRIED, ">>deu<< two plums"]:
        read = tokenizer([text], return_tensors="pt")
        output = theirs.generate(**read)
        expected = [one for one in output[0][1:].tolist() if one not in (0, theirs.config.pad_token_id)]
        if 0 in output[0][1:].tolist():
            ended += 1
            (found,) = model.predict([text], seqloom.Options(split=False))
            assert found.best.tokens == tuple(tokenizer.convert_ids_to_tokens(expected))
            assert found.text == tokenizer.decode(output[0], skip_special_tokens=True)
    assert ended >= 3, "too few outputs ended for a comparison"


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    huggingface_folder(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "model_type": "bart"}))
    with pytest.raises(SeqloomError, match="model_type 'bart' cannot be converted") as refused:
        seqloom.convert(tmp_path / "hf", tmp_path / "ours")
    assert refused.value.code == "E_BUNDLE"
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "d_model": 32}))
    with pytest.raises(SeqloomError, match=r"target.embedding is \(\d+, 16\), expected \(\d+, 32\)"):
        seqloom.convert(tmp_path / "hf", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"encoder_layers": 10**9}, "encoder_layers"),
        ({"pad_token_id": 10**12}, "pad_token_id"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"tie_word_embeddings": False}, "the weights lack lm_head.weight"),
    ],
)
def test_sizes_that_no_model_has_are_refused(change: dict[str, object], told: str, tmp_path: Path) -> None:
    huggingface_folder(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | change))
    (tmp_path / "hf" / "generation_config.json").unlink()  # what it says counts more
    with pytest.raises(SeqloomError) as refused:
        seqloom.convert(tmp_path / "hf", tmp_path / "ours")
    assert refused.value.code == "E_BUNDLE"
    assert told in refused.value.line
    assert not (tmp_path / "ours").exists()
