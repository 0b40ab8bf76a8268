"""Word vectors from GloVe and word2vec text files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.api.train import Wishes, train
from seqloom.data.vectors import read_vectors
from seqloom.errors import SeqloomError
from seqloom.recipe import recipe_from


def test_wanted_words_are_found_and_a_header_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("3 2\ncat 1 2\ndog 3.5 -4e-1\n. . . 7 8\n")
    found = read_vectors(path, {"cat", ". . .", "cow"}, 2)
    assert set(found) == {"cat", ". . ."}
    assert found["cat"].tolist() == [1.0, 2.0]
    assert found[". . ."].dtype == np.float32


@pytest.mark.parametrize(
    ("text", "word"),
    [("cat 1 2\ndog 3\n", "v.txt:2"), ("cat 1 x\n", "v.txt:1"), ("cat 1 nan\n", "not finite")],
)
def test_wrong_files_are_refused_with_their_line(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(SeqloomError, match="E_DATA") as refused:
        read_vectors(path, {"cat", "dog"}, 2)
    assert word in refused.value.line


def test_a_run_begins_with_the_given_vectors_and_may_keep_them(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("the cat, sat\tdie Katze\nthe dog sat\tder Hund\n" * 20)
    (tmp_path / "v.txt").write_text("cat 1 2 3\ndog 4 5 6\n, 7 8 9\n")
    side = {"width": 3, "vectors": str(tmp_path / "v.txt"), "freeze": True}
    raw = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "split": {"dev": 0.4, "test": 0.1, "seed": 3}},
        "model": {"source_embedding": side, "encoder": {"width": 4}, "decoder": {"width": 4}},
        "training": {"steps": 2},
        "runtime": {"threads": 1},
    }
    dataset = tmp_path / "both.tsv"
    dataset.write_text((tmp_path / "pairs.tsv").read_text())
    raw["data"] = {"train": str(dataset), "dev": str(dataset), "test": str(dataset)}
    said: list[str] = []
    model = train(recipe_from(raw, "test"), tmp_path / "run", wishes=Wishes(tell=said.append)).model
    ids = model.source.encode("cat, dog")
    assert torch.equal(model.network.source_embedding.table[ids], torch.tensor([[1.0, 2, 3], [7, 8, 9], [4, 5, 6]]))
    assert any("vectors" in line for line in said)
