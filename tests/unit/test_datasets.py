"""The sets of a recipe: several corpora as one, held-out shares, definite and portable forms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqloom.api.datasets import Datasets, fingerprints, merged, portable, settled
from seqloom.api.testset import from_spec, named_dataset
from seqloom.data.examples import Example
from seqloom.data.readers import dataset_settings
from seqloom.data.sets import Data, Split
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe, recipe_from
from seqloom.tasks.teaching import Teachers


@pytest.fixture
def corpora(tmp_path: Path) -> list[dict[str, object]]:
    for name, count in (("a", 60), ("b", 20)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{name}{i}\t{name}{i}\tT{i % 3}\n" for i in range(count)))
    return [
        {"path": str(tmp_path / "a.tsv"), "extras": {"tags": 2}, "constants": {"lang": "<a>"}},
        {"path": str(tmp_path / "b.tsv"), "extras": {"tags": 2}, "constants": {"lang": "<b>"}, "importance": 0.5},
    ]


def test_what_asks_the_same_is_one_item() -> None:
    examples = [
        Example("go", ("went",), "f", 1, {"tags": "PST"}),
        Example("go", ("goes",), "f", 2, {"tags": "PRS"}),
        Example("go", ("did go", "went"), "f", 3, {"tags": "PST"}),
    ]
    found = merged(iter(examples))
    assert [(one.extras["tags"], one.references, one.line) for one in found] == [
        ("PST", ("went", "did go"), 1),
        ("PRS", ("goes",), 2),
    ]


def test_corpora_come_one_after_the_other(corpora: list[dict[str, object]]) -> None:
    data = Data.model_validate({"train": corpora, "split": {"dev": 0.2, "test": 0.2}})
    sets = Datasets(data)
    train, dev, test = list(sets.train()), list(sets.dev()), list(sets.test())
    assert len(train) + len(dev) + len(test) == 80
    assert [one.corpus for one in train] == sorted(one.corpus for one in train)
    assert {one.corpus for one in train} == {0, 1}
    for one in train:
        assert (one.extras["lang"], one.weight) == (("<a>", 1.0), ("<b>", 0.5))[one.corpus]
    assert not {one.key for one in train} & {one.key for one in dev + test}


def test_settled_data_are_absolute_spooled_and_counted(
    corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"c\tc\tT\n")
    os.close(writing)
    monkeypatch.chdir(tmp_path)
    relative = [{**corpora[0], "path": "a.tsv"}, {**corpora[1], "path": f"/dev/fd/{reading}"}]
    done = settled(Data.model_validate({"train": relative}), tmp_path / "run")
    files = done.files()["train"]
    assert files[0] == str(tmp_path / "a.tsv")
    assert Path(files[1]).is_file()
    assert tmp_path / "run" / "input" / "train" in Path(files[1]).parents
    assert len(list(Datasets(done).train())) + len(list(Datasets(done).dev())) + len(list(Datasets(done).test())) == 61
    assert done.split.dev is not None
    assert set(fingerprints(done)) == set(files)
    extras = {name: {"use": "prefix"} for name in done.sets["train"][0].extra_names}
    raw = {"data": done.model_dump(), "extras": extras, "training": {"steps": 1}}
    recipe = recipe_from({**raw, "task": {"teachers": {"runs": ["/x/y"]}}}, "here")
    assert portable(recipe).task.teachers == Teachers(runs=("y",))
    assert portable(recipe).data.files()["train"] == ["a.tsv", Path(files[1]).name]
    assert settled(done, tmp_path / "run") == done, "nothing is left to settle"


def test_how_corpora_are_mixed(corpora: list[dict[str, object]]) -> None:
    def mixture(**more: object) -> object:
        shares = more.pop("shares", (None, None))
        train = [{**one, "share": share} for one, share in zip(corpora, shares, strict=True)]  # type: ignore[call-overload]
        found = Data.model_validate({"train": train, **more}).mixture([60, 20])
        return None if found is None else [round(share, 6) for share in found.shares]

    assert mixture() is None, "as they come: every pair once"
    assert mixture(shares=(0.4, None)) == [0.4, 0.6]
    assert mixture(mixing={"temperature": 1}) == [0.75, 0.25]
    assert mixture(mixing={"temperature": 1e9}) == [0.5, 0.5]


def recipe(train: object) -> Recipe:
    return recipe_from({"data": {"train": train}, "extras": {"tags": {}}, "training": {"steps": 1}}, "r")


def test_a_bare_file_is_read_like_the_training_data(tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("T\tgo\twent\n")
    form = {"path": "train.tsv", "columns": [1, 2], "extras": {"tags": 0}, "weight": 3, "importance": 2.0}
    [found] = from_spec(str(other), recipe(form))
    assert (found.source, found.target, found.extras, found.weight) == ("go", "went", {"tags": "T"}, 1.0)
    told = named_dataset(f"{{path: {other}, columns: [0, 1]}}", "--data", recipe(form))
    assert told.extra_names == (), "what is told is taken as it is"
    assert named_dataset("x.jsonl", "--data", recipe(form)).extra_names == (), "another format"
    several = [form, {**form, "extras": {"tags": 5}}]
    assert named_dataset(str(other), "--data", recipe(several)).extra_names == (), "they do not agree"
    plain = recipe_from({"data": {"train": {"path": "a", "columns": [1, 0]}}, "training": {"steps": 1}}, "r")
    assert named_dataset("b", "--data", plain).model_dump()["columns"] == (0, 1), "without extras nothing is assumed"


def test_a_portion_is_of_the_training_pairs_alone_and_part_of_every_larger_one(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {i}\ttarget {i}\n" for i in range(2_000)))
    whole = Data(train=dataset_settings(str(path)), split=Split(dev=0.1, test=0.1))  # type: ignore[arg-type]
    sets = {share: Datasets(whole.with_(portion=share)) for share in (0.01, 0.1, 1.0)}
    kept = {share: {example.source for example in found.train()} for share, found in sets.items()}
    assert kept[0.01] < kept[0.1] < kept[1.0]
    assert 0.07 < len(kept[0.1]) / len(kept[1.0]) < 0.13
    held_out = [[example.source for example in [*found.dev(), *found.test()]] for found in sets.values()]
    assert held_out[0] == held_out[1] == held_out[2], "what is judged does not change"


def test_no_portion_of_one_long_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a line\n")
    raw = {"data": {"train": {"path": str(path), "unit": "stream"}, "dev": str(path), "portion": 0.5}}
    with pytest.raises(SeqloomError, match="one long text is not drawn from line by line"):
        recipe_from({**raw, "model": "language", "training": {"steps": 1}, "batching": {"window": 8}}, "r.yaml")
