"""A person has pictures: they are learned, captioned, labelled and explained by the same commands as texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from commands import Command, binary
from scenes import COLOURS, SIDES, write_blocks
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.train import train
from seqloom.errors import SeqloomError

pytest_plugins = ["command_fixtures"]

RECIPE = """
data: {{train: {{path: {data}, references: [2]}}}}
source: {{kind: pixels, size: 16, region: 4{more}}}
target: {{tokenizer: {tokenizer}}}
model:
  target_embedding: {{width: 16}}
  encoder: {encoder}
  decoder: {decoder}
task: {task}
batching: {{tokens: 272}}
training: {{steps: {steps}, validate_every: 100, optimiser: {{kind: adam, lr: 5e-3}}, metric: exact}}
evaluation: {{metrics: [exact], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
CNN = "{kind: cnn, width: 24, channels: 8}"
ATTEND = "{kind: bahdanau, cell: gru, width: 32}"


def learned(folder: Path, **parts: object) -> Path:
    usual = {"encoder": CNN, "decoder": ATTEND, "tokenizer": "words", "task": "{}", "more": "", "steps": 120}
    (folder / "recipe.yaml").write_text(RECIPE.format(**{"data": write_blocks(folder), **usual, **parts}))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("captions"), more=", augment: {shift: 0.05, brightness: 0.1}")


def test_show_attend_and_tell(captions: Path) -> None:
    assert evaluate(load(captions))["exact"] > 90  # either caption is right


@pytest.mark.parametrize(
    ("encoder", "decoder", "task"),
    [
        (CNN, "{kind: rnn, cell: gru, width: 32, attention: null, start: bridge}", "{}"),  # Show and Tell
        ("{kind: patches, width: 32, layers: 2, heads: 2, dropout: 0.0}", "{kind: luong, width: 32}", "{}"),
        (CNN, "{kind: bahdanau, cell: gru, width: 32, attention: {sampled: true}}", "{}"),  # stochastic hard attention
        (CNN, ATTEND, "{doubly_stochastic: 0.1}"),
    ],
    ids=["vector", "patches", "sampled", "doubly"],
)
def test_other_ways_to_tell(encoder: str, decoder: str, task: str, tmp_path: Path) -> None:
    assert evaluate(load(learned(tmp_path, encoder=encoder, decoder=decoder, task=task, steps=160)))["exact"] > 75


def test_a_label_for_a_picture(tmp_path: Path) -> None:
    run = learned(tmp_path, decoder="{kind: label, pooling: attention}", tokenizer="whole", steps=120)
    model = load(run)
    said = model(str(tmp_path / "blocks" / "0.png"), n_best=3)
    assert {one.text for one in said.hypotheses} <= {f"{colour} {side}" for colour in COLOURS for side in SIDES}


def test_a_picture_a_folder_and_a_list_on_stdin(captions: Path, seqloom: Command) -> None:
    folder = captions.parent
    one = seqloom("predict", captions, folder / "blocks" / "0.png", "-q").out.splitlines()
    assert len(one) == 1
    every = seqloom("predict", captions, folder / "blocks", "-q").out.splitlines()
    assert len(every) == 120
    assert every[0] == one[0]  # 0.png is the first by name
    listed = f"{folder / 'blocks' / '0.png'}\n\n{folder / 'blocks' / '1.png'}\n"
    said = binary("predict", captions, "-q", input=listed.encode()).out.splitlines()
    assert (said[0], said[1], len(said)) == (one[0], "", 3)
    names = folder / "names.txt"
    names.write_text("blocks/0.png\nblocks/1.png\n")
    assert seqloom("predict", captions, names, "-q").out.splitlines() == [said[0], said[2]]


def test_explained_in_words_as_json_and_on_a_page(captions: Path, seqloom: Command, tmp_path: Path) -> None:
    picture = captions.parent / "blocks" / "0.png"
    shown = seqloom("explain", captions, picture).out
    assert "top-left" in shown
    told = json.loads(seqloom("explain", captions, picture, "--json").out)
    assert told["grid"] == [4, 4]
    assert np.allclose(np.array(told["weights"]).sum(-1), 1, atol=1e-3)
    assert len(told["source_tokens"]) == 17
    seqloom("explain", captions, picture, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '"picture":{"uri":"data:image/png;base64,' in page
    assert "img-src data:" in page
    assert "words" in seqloom("explain", captions, picture, "--words").refused("E_USAGE", 2)
    depth = seqloom("explain", captions, "--depth")
    assert depth.code == 0, depth.err
    assert "no reach: its states are regions of a picture" in depth.out
    assert "without it +" in depth.out


def test_weights_of_a_file_begin_the_network(captions: Path, tmp_path: Path) -> None:
    encoder = load(captions, packed=False).network.encoder
    tensors = {name: tensor.contiguous() for name, tensor in encoder.state_dict().items()}
    save_file(tensors, tmp_path / "cnn.safetensors")
    given = f"{{kind: cnn, width: 24, channels: 8, weights: {tmp_path / 'cnn.safetensors'}}}"
    run = learned(tmp_path, encoder=given, steps=1)
    begun = load(run, packed=False).network.encoder.state_dict()
    assert all(torch.allclose(begun[name], tensor, atol=0.05) for name, tensor in tensors.items())
    tensors["stem.weight"] = torch.zeros(1)
    tensors["more"] = tensors.pop("end")
    save_file(tensors, tmp_path / "cnn.safetensors")
    shutil.rmtree(run)
    with pytest.raises(SeqloomError, match=r"E_BUNDLE.*missing: end; extra: more; wrong shape: stem.weight") as caught:
        train(tmp_path / "recipe.yaml", run)
    assert "model.encoder.weights" in caught.value.where


def test_hedged_and_withheld(captions: Path, seqloom: Command) -> None:
    picture = captions.parent / "blocks" / "0.png"
    plain = seqloom("predict", captions, picture, "-q").out.strip()
    hedged = seqloom("predict", captions, picture, "--hedge", "1")
    assert hedged.out.strip() == f"I am not really confident, but I think: {plain}"
    assert "1 hedged" in hedged.err
    withheld = seqloom("predict", captions, picture, "--withhold", "1")
    assert withheld.out == "\n"
    assert "1 withheld" in withheld.err
    told = json.loads(seqloom("predict", captions, picture, "--withhold", "1", "--json", "-q").out)
    assert (told["text"], told["withheld"], told["hypotheses"][0]["text"]) == ("", True, plain)
    assert seqloom("predict", captions, picture, "--hedge", "0", "-q").out.strip() == plain
    seqloom("predict", captions, picture, "--hedge", "0.2", "--withhold", "0.5").refused("E_USAGE", 2)
    seqloom("predict", captions, picture, "--hedge", "2").refused("E_USAGE", 2)
