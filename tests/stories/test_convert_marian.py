"""`seqloom convert` and Marian's own .npz: what the archive says, by formulas written out here from Marian's source.

Marian itself is C++ and is not run by this test: the formulas are a second way to read the same names, with NumPy.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from commands import Command
from foreign import TRIED, pieces_of, sentencepiece_model
from seqloom.api.convert import convert
from seqloom.api.load import load
from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.export.importers.archives import read_archive
from seqloom.specials import BOS, EOS

pytest_plugins = ["command_fixtures"]
Array = npt.NDArray[np.float32]
WIDTH, HEADS, INNER = 16, 4, 24


class Marian:
    """The forward pass of a Marian Transformer, from the arrays of its .npz."""

    def __init__(self, arrays: dict[str, Array], pre: bool) -> None:
        self.arrays, self.pre = arrays, pre

    def log_probs(self, source: list[int], said: list[int]) -> Array:
        """After the zero vector that outputs begin with, and after each of these ids."""
        memory = self._layers("encoder", 2, self._placed(self.arrays["Wemb"][source]), None)
        begun = np.concatenate([np.zeros((1, WIDTH), np.float32), self.arrays["Wemb"][said]])
        states = self._layers("decoder", 1, self._placed(begun), memory)
        logits = states @ self.arrays["Wemb"].T + self.arrays["decoder_ff_logit_out_b"]
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def _placed(self, embedded: Array) -> Array:
        waves = WIDTH // 2
        angle = np.arange(len(embedded))[:, None] * np.exp(-np.arange(waves) * np.log(10000.0) / (waves - 1))
        return embedded * np.sqrt(WIDTH) + np.concatenate([np.sin(angle), np.cos(angle)], 1)

    def _layers(self, side: str, count: int, x: Array, memory: Array | None) -> Array:
        for number in range(1, count + 1):
            name = f"{side}_l{number}"
            x = self._around(
                x, f"{name}_self_Wo", lambda y, n=name: self._attended(f"{n}_self", y, y, memory is not None)
            )
            if memory is not None:
                x = self._around(
                    x, f"{name}_context_Wo", lambda y, n=name: self._attended(f"{n}_context", y, memory, False)
                )
            x = self._around(x, f"{name}_ffn_ffn", lambda y, n=name: self._widened(f"{n}_ffn", y))
        return self._normed(x, f"{side}_top", "") if self.pre else x

    def _around(self, x: Array, norm: str, change) -> Array:  # type: ignore[no-untyped-def]
        if self.pre:
            return x + change(self._normed(x, norm, "_pre"))
        return self._normed(x + change(x), norm, "")

    def _normed(self, x: Array, name: str, behind: str) -> Array:
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return y * self.arrays[f"{name}_ln_scale{behind}"] + self.arrays[f"{name}_ln_bias{behind}"]

    def _attended(self, name: str, x: Array, read: Array, causal: bool) -> Array:
        q, k, v = (
            (y @ self.arrays[f"{name}_W{letter}"] + self.arrays[f"{name}_b{letter}"])
            .reshape(len(y), HEADS, -1)
            .transpose(1, 0, 2)
            for letter, y in zip("qkv", (x, read, read), strict=True)
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH / HEADS)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found = (weights @ v).transpose(1, 0, 2).reshape(len(x), -1)
        return found @ self.arrays[f"{name}_Wo"] + self.arrays[f"{name}_bo"]

    def _widened(self, name: str, x: Array) -> Array:
        wide = x @ self.arrays[f"{name}_W1"] + self.arrays[f"{name}_b1"]
        return (wide / (1 + np.exp(-wide))) @ self.arrays[f"{name}_W2"] + self.arrays[f"{name}_b2"]


def arrays_of(vocabulary: int, pre: bool) -> dict[str, Array]:
    """Random weights under Marian's names."""
    generator = np.random.default_rng(5)

    def drawn(*shape: int) -> Array:
        return (generator.normal(size=shape) * 0.5).astype(np.float32)

    found = {"Wemb": drawn(vocabulary, WIDTH), "decoder_ff_logit_out_b": drawn(1, vocabulary)}
    before = "_pre" if pre else ""
    for side, count in (("encoder", 2), ("decoder", 1)):
        for number in range(1, count + 1):
            name = f"{side}_l{number}"
            for kind in ("self", "context")[: 1 + (side == "decoder")]:
                for letter in "qkvo":
                    found[f"{name}_{kind}_W{letter}"] = drawn(WIDTH, WIDTH)
                    found[f"{name}_{kind}_b{letter}"] = drawn(1, WIDTH)
                found[f"{name}_{kind}_Wo_ln_scale{before}"] = drawn(1, WIDTH)
                found[f"{name}_{kind}_Wo_ln_bias{before}"] = drawn(1, WIDTH)
            found |= {f"{name}_ffn_W1": drawn(WIDTH, INNER), f"{name}_ffn_b1": drawn(1, INNER)}
            found |= {f"{name}_ffn_W2": drawn(INNER, WIDTH), f"{name}_ffn_b2": drawn(1, WIDTH)}
            found |= {f"{name}_ffn_ffn_ln_{part}{before}": drawn(1, WIDTH) for part in ("scale", "bias")}
        if pre:
            found |= {f"{side}_top_ln_{part}": drawn(1, WIDTH) for part in ("scale", "bias")}
    return found


def settings_of(pre: bool, **changes: object) -> dict[str, object]:
    around = ("n", "da", "n") if pre else ("", "dan", "")
    return {
        "type": "transformer",
        "dim-emb": WIDTH,
        "enc-depth": 2,
        "dec-depth": 1,
        "transformer-heads": HEADS,
        "transformer-dim-ffn": INNER,
        "transformer-ffn-activation": "swish",
        **dict(
            zip(
                ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top"),
                around,
                strict=True,
            )
        ),
        "tied-embeddings-all": True,
        "beam-size": 3,
        "normalize": 0.6,
        **changes,
    }


def written(folder: Path, pre: bool = False, apart: bool = False, **changes: object) -> tuple[Marian, list[str]]:
    """A model's folder, and its pieces in the order of their ids."""
    folder.mkdir()
    models = [sentencepiece_model(side) for side in ("source", "target")]
    if apart:
        pieces = [*dict.fromkeys(["</s>", "<unk>", *pieces_of(models[0]), *pieces_of(models[1])])]
        (folder / "source.spm").write_bytes(models[0])
        (folder / "target.spm").write_bytes(models[1])
        lines = [f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(pieces)]
        (folder / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    else:
        pieces = pieces_of(models[0])
        (folder / "vocab.spm").write_bytes(models[0])
    arrays = arrays_of(len(pieces), pre)
    told = np.frombuffer(json.dumps(settings_of(pre, **changes)).encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays, **{"special:model.yml": told})
    return Marian(arrays, pre), pieces


@pytest.mark.parametrize("apart", [False, True], ids=["one vocabulary", "two sentencepiece models"])
@pytest.mark.parametrize("pre", [False, True], ids=["post-norm", "pre-norm"])
@torch.no_grad()
def test_probabilities_are_those_of_marians_formulas(pre: bool, apart: bool, tmp_path: Path) -> None:
    marian, pieces = written(tmp_path / "marian", pre, apart)
    made = convert(tmp_path / "marian" / "model.npz", tmp_path / "ours")
    model = load(made.folder, packed=False)
    known, said = {piece: number for number, piece in enumerate(pieces)}, pieces[7:11]
    for text in TRIED:
        cut = model.source.tokens(text)
        expected = marian.log_probs([*(known.get(piece, known["<unk>"]) for piece in cut), 0], [7, 8, 9, 10])
        state = model.network.start({"source": Tokens.pad([[*model.source.encode(text), EOS]])}, 1)
        read = torch.tensor([[BOS, *model.target.vocabulary.ids(said)]])
        features, state = model.network.decoder(read, state)
        found = model.network.head.log_probs(features, state)[0]
        order = [*model.target.vocabulary.ids(pieces)]
        order[known["</s>"]] = EOS
        np.testing.assert_allclose(found[:, order].numpy(), expected, atol=1e-4)
        assert float(found.exp()[:, [0, 2, 4, 5]].sum()) == 0.0  # Marian has neither padding nor a start


def test_the_command_tells_what_it_made(tmp_path: Path, seqloom: Command) -> None:
    written(tmp_path / "marian", apart=True)
    told = seqloom("convert", tmp_path / "marian", "-o", tmp_path / "ours")
    assert told.code == 0
    assert "a Marian model of" in told.err
    assert "each side has a copy" in told.err
    said = seqloom("predict", tmp_path / "ours", "--text", "rain falls")
    assert said.code == 0
    assert len(said.out.splitlines()) == 1
    assert seqloom("export", tmp_path / "ours", "--to", "ctranslate2").code == 0
    assert seqloom("explain", tmp_path / "ours", "rain falls").code == 0, "what is exported stands beside the bundle"
    again = seqloom("convert", tmp_path / "marian", "-o", tmp_path / "ours", "--json")
    assert json.loads(again.out)["tool"] == "Marian"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"type": "s2s"}, "type: 's2s' cannot be converted"),
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg: 'rnn'"),
        ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation: gelu"),
        ({"transformer-postprocess": "n"}, "transformer-preprocess, -postprocess"),
        ({"enc-depth": 10**9}, "enc-depth: '1000000000', and a number from 1 to 1,000 is expected"),
        ({"transformer-heads": "many"}, "transformer-heads: 'many'"),
        ({"dec-depth": 2}, "the model lacks decoder_l2_self_Wq"),
        ({"transformer-dim-ffn": 8}, "encoder.0.forward.widen is"),
    ],
)
def test_models_of_other_shapes_are_refused(change: dict[str, object], told: str, tmp_path: Path) -> None:
    written(tmp_path / "marian", **change)
    with pytest.raises(SeqloomError) as refused:
        convert(tmp_path / "marian", tmp_path / "ours")
    assert refused.value.code == "E_BUNDLE"
    assert told in refused.value.line
    assert not (tmp_path / "ours").exists()


def test_files_that_lie_are_refused(tmp_path: Path) -> None:
    """No object is unpickled, and nothing larger than the file is made."""
    path = tmp_path / "model.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(SeqloomError, match="only numbers are read"):
        read_archive(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    for data, told in (
        (header.getvalue() + b"1234", "tells of 4,000,000,000,000"),
        (b"\x80\x04K\x01.", "not a NumPy array"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", data)
        with pytest.raises(SeqloomError, match=told) as refused:
            read_archive(path)
        assert refused.value.code == "E_BUNDLE"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(SeqloomError, match="not a whole archive"):
        read_archive(path)


def test_a_trained_run_is_not_written_over(tmp_path: Path, run: Path, seqloom: Command) -> None:
    written(tmp_path / "marian")
    before = (run / "bundle" / "card.json").read_bytes()
    assert "something else" in seqloom("convert", tmp_path / "marian", "-o", run).refused("E_USAGE", 2)
    assert (run / "bundle" / "card.json").read_bytes() == before


def test_what_is_no_model_is_refused(tmp_path: Path, seqloom: Command) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert "no model of a tool that is known" in seqloom("convert", tmp_path).refused("E_BUNDLE", 4)
    assert "no such file" in seqloom("convert", tmp_path / "absent").refused("E_FILE", 6)
    assert "one of:" in seqloom("convert", tmp_path, "--tool", "fairseq").refused("E_USAGE", 2)
