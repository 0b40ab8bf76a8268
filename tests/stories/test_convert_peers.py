"""`seqloom convert` and Transformers of JoeyNMT and OpenNMT-py: models that those libraries built themselves.

Neither is among the packages that seqloom is developed with; where one is not installed its tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from foreign import pieces_of, randomised, sentencepiece_model
from seqloom.api.convert import convert
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.specials import BOS, EOS

WORDS = {"source": ["a", "b", "c", "d", "e", "f"], "target": ["u", "v", "w", "x", "y", "z"]}
READ, SAID = ["a", "d", "unheard", "b"], ["w", "u", "z"]


@torch.no_grad()
def said_by(model: Model, read: list[str], said: list[str]) -> torch.Tensor:
    """Log-probabilities after each token, of every target word, the end last."""
    state = model.network.start({"source": Tokens.pad([[*model.source.vocabulary.ids(read), EOS]])}, 1)
    tokens = torch.tensor([[BOS, *model.target.vocabulary.ids(said)]])
    features, state = model.network.decoder(tokens, state)
    found = model.network.head.log_probs(features, state)[0]
    return found[:, [*model.target.vocabulary.ids(WORDS["target"]), EOS]]


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


# --- JoeyNMT ------------------------------------------------------------------------------------------------------


def joey_folder(folder: Path, norm: str, tied: bool) -> Any:
    joey = pytest.importorskip("joeynmt.model", reason="joeynmt is not installed: pip install joeynmt")
    from joeynmt.vocabulary import Vocabulary

    part = {
        "type": "transformer",
        "num_layers": 2,
        "num_heads": 4,
        "hidden_size": 16,
        "ff_size": 24,
        "dropout": 0.1,
        "layer_norm": norm,
        "activation": "relu" if tied else "swish",
        "embeddings": {"embedding_dim": 16, "scale": True},
    }
    symbols = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    numbers = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "sep_token": None, "sep_id": None, "lang_tags": []}
    config = {
        "data": {"special_symbols": symbols},
        "model": {"tied_softmax": tied, "encoder": part, "decoder": part, "initializer": "xavier_uniform"},
        "testing": {"beam_size": 1},
    }
    specials = SimpleNamespace(**symbols, **numbers)
    vocabularies = [Vocabulary(words, specials) for words in WORDS.values()]
    model = joey.build_model(config["model"], *vocabularies).eval()
    randomised(model)
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML, without aliases
    for name, vocabulary in zip(("src", "trg"), vocabularies, strict=True):
        (folder / f"{name}_vocab.txt").write_text("\n".join(vocabulary._itos) + "\n")
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_probabilities_are_those_of_joeynmt(norm: str, tied: bool, tmp_path: Path) -> None:
    theirs = joey_folder(tmp_path / "joey", norm, tied)
    made = convert(tmp_path / "joey", tmp_path / "ours")
    assert made.tool == "JoeyNMT"
    source = [theirs.src_vocab.lookup(word) for word in READ] + [3]
    target = [2, *(theirs.trg_vocab.lookup(word) for word in SAID)]
    batch = {
        "src": torch.tensor([source]),
        "src_length": torch.tensor([len(source)]),
        "src_mask": torch.ones(1, 1, len(source), dtype=torch.bool),
        "trg_input": torch.tensor([target]),
        "trg_mask": torch.ones(1, 1, len(target), dtype=torch.bool),
    }
    logits = theirs._encode_decode(**batch)[0][0]
    order = [*(theirs.trg_vocab.lookup(word) for word in WORDS["target"]), 3]
    close(said_by(load(made.folder, packed=False), READ, SAID), torch.log_softmax(logits, -1)[:, order])


def test_recurrent_joeynmt_models_are_refused(tmp_path: Path) -> None:
    joey_folder(tmp_path / "joey", "pre", True)
    config = json.loads((tmp_path / "joey" / "config.yaml").read_text())
    config["model"]["encoder"]["type"] = "recurrent"
    (tmp_path / "joey" / "config.yaml").write_text(json.dumps(config))
    with pytest.raises(SeqloomError, match="type: recurrent cannot be converted"):
        convert(tmp_path / "joey", tmp_path / "ours")


# --- OpenNMT-py ---------------------------------------------------------------------------------------------------

ONMT_SPECIALS = ["<unk>", "<blank>", "<s>", "</s>"]


def onmt_folder(folder: Path, **changes: object) -> Any:
    builder = pytest.importorskip("onmt.model_builder", reason="OpenNMT-py is not installed: pip install OpenNMT-py")
    import onmt.opts
    from onmt.inputters.inputter import dict_to_vocabs
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    onmt.opts.model_opts(parser)
    chosen = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": 2,
        "dec_layers": 1,
        "heads": 4,
        "hidden_size": 16,
        "enc_hid_size": 16,
        "dec_hid_size": 16,
        "src_word_vec_size": 16,
        "tgt_word_vec_size": 16,
        "word_vec_size": 16,
        "transformer_ff": 24,
        "position_encoding": True,
        **changes,
    }
    options = parser.parse_args([])
    for key, value in chosen.items():
        setattr(options, key, value)
    unsaid = {"dropout": [0.0], "attention_dropout": [0.0], "use_ckpting": [], "quant_layers": []}
    unsaid |= {"freeze_word_vecs_enc": False, "freeze_word_vecs_dec": False, "parallel_gpu": 1, "optim": "adam"}
    unsaid |= {
        "freeze_encoder": False,
        "freeze_decoder": False,
        "lora_layers": [],
        "parallel_mode": "",
        "self_attn_type": "scaled-dot",
    }
    for key, value in unsaid.items():
        setattr(options, key, value)
    vocabulary = {side: [*ONMT_SPECIALS, *words] for side, words in WORDS.items()}
    vocabs = dict_to_vocabs(
        {
            "data_task": "seq2seq",
            "decoder_start_token": "<s>",
            "src": vocabulary["source"],
            "tgt": vocabulary["target"],
        }
    )
    model = builder.build_base_model(options, vocabs).eval()
    randomised(model)
    folder.mkdir()
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    plain = {key: value for key, value in vars(options).items() if isinstance(value, (bool, int, float, str))}
    (folder / "options.json").write_text(json.dumps(plain))
    for name, side in (("src", "source"), ("tgt", "target")):
        (folder / f"{name}.vocab").write_text("\n".join(vocabulary[side]) + "\n")
    return model


@pytest.mark.parametrize(
    "changes",
    [{}, {"position_encoding_type": "SinusoidalConcat", "add_qkvbias": True, "pos_ffn_activation_fn": "gelu"}],
    ids=["defaults", "the other choices"],
)
@torch.no_grad()
def test_probabilities_are_those_of_opennmt(changes: dict[str, object], tmp_path: Path) -> None:
    theirs = onmt_folder(tmp_path / "onmt", **changes)
    made = convert(tmp_path / "onmt", tmp_path / "ours")
    assert made.tool == "OpenNMT-py"
    source = [4 + WORDS["source"].index(word) if word in WORDS["source"] else 0 for word in READ]
    target = [2, *(4 + WORDS["target"].index(word) for word in SAID), 3]
    read, said = torch.tensor([source])[..., None], torch.tensor([target])[..., None]
    states, _ = theirs(read, said, torch.tensor([len(source)]))
    expected = torch.log_softmax(theirs.generator(states)[0], -1)[:, [*range(4, 10), 3]]
    close(said_by(load(made.folder, packed=False), READ, SAID), expected)


def test_other_opennmt_models_are_refused(tmp_path: Path) -> None:
    onmt_folder(tmp_path / "onmt")
    options = json.loads((tmp_path / "onmt" / "options.json").read_text())
    (tmp_path / "onmt" / "options.json").write_text(json.dumps({**options, "max_relative_positions": 20}))
    with pytest.raises(SeqloomError, match="max_relative_positions: 20 cannot be converted"):
        convert(tmp_path / "onmt", tmp_path / "ours")


# --- both ---------------------------------------------------------------------------------------------------------


def test_texts_are_cut_by_sentencepiece_models_beside_the_weights(tmp_path: Path) -> None:
    """Their texts were cut before training; with the models at hand a person need not do that again."""
    from seqloom.export.importers.foreign import Vocabulary, text_side, usual_specials

    model = sentencepiece_model("source")
    (tmp_path / "source.spm").write_bytes(model)
    pieces = ["<unk>", "<pad>", "<s>", *pieces_of(model)]
    vocabulary = Vocabulary.named([*dict.fromkeys(pieces)], usual_specials("<pad>", "<unk>", "<s>", "</s>"), "here")
    assert text_side(tmp_path, "source.spm", vocabulary).model == model
    assert text_side(tmp_path, "target.spm", vocabulary).tokenizer == {"kind": "symbols"}
