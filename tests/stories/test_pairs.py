"""Two sentences, one label: is the second number the one after the first? Who only adds up the words cannot know."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import pytest

import seqloom as library
from commands import Command
from seqloom.config import render_yaml
from seqloom.errors import SeqloomError
from seqloom.recipe import load_recipe, recipe_from

pytest_plugins = ["command_fixtures"]

NUMBERS = range(12)
NAMES = ["nil", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
RECIPE = """
data:
  train: {{path: {folder}/train.tsv, columns: [0, 2], extras: {{other: 1}}, header: true}}
  dev: {{path: {folder}/test.tsv, columns: [0, 2], extras: {{other: 1}}, header: true}}
  test: {{path: {folder}/test.tsv, columns: [0, 2], extras: {{other: 1}}, header: true}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
extras:
  other: {{use: shared}}
model:
  source_embedding: {{width: 24}}
  encoder: {{kind: bag, width: 24}}
  decoder: {{kind: label, {decoder}}}
batching: {{tokens: 192}}
training: {{epochs: 12, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
search: {{strategy: greedy}}
evaluation: {{metrics: [accuracy], validate_examples: 50, show: 0}}
runtime: {{device: cpu, threads: 1}}
"""
WAYS = {
    "nothing": "pooling: mean",
    "features": "pooling: mean, compare: features, hidden: 32",
    "attention": "pooling: mean, compare: attention, hidden: 32",
    "query": "query: other, hidden: 32",
}


def write_numbers(path: Path, rng: Random, count: int) -> None:
    """Half of the pairs are true; a number stands among words that say nothing, never the same way twice."""
    lines = ["first\tsecond\tlabel\n"]
    true = [(n, n + 1) for n in NUMBERS[:-1]]
    false = [(a, b) for a, b in product(NUMBERS, NUMBERS) if b != a + 1]
    for index in range(count):
        told = [
            " ".join([*rng.choices(["well", "now", "so"], k=rng.randint(0, 1)), NAMES[n]])
            for n in rng.choice(false if index % 2 else true)
        ]
        lines.append("\t".join([*told, "no" if index % 2 else "yes"]) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


@cache
def trained(way: str) -> Path:
    folder = Path(mkdtemp(prefix="seqloom-tests-"))
    rng = Random(1)
    write_numbers(folder / "train.tsv", rng, 700)
    write_numbers(folder / "test.tsv", rng, 100)
    (folder / "pairs.yaml").write_text(RECIPE.format(folder=folder, decoder=WAYS[way]), encoding="utf-8")
    return library.train(folder / "pairs.yaml", folder / "run").folder


def accuracy(way: str) -> float:
    return library.evaluate(library.load(trained(way)))["accuracy"]


@pytest.mark.parametrize("way", ["features", "attention", "query"])
def test_what_compares_learns_what_adding_up_cannot(way: str) -> None:
    assert accuracy(way) >= max(90, accuracy("nothing") + 10)


@pytest.mark.parametrize("way", ["features", "attention", "query"])
def test_both_sentences_have_one_vocabulary_and_one_codec(way: str) -> None:
    model = library.load(trained(way))
    assert model.codecs.extras["other"] is model.codecs.source
    assert set(model.codecs.source.vocabulary.ordinary) == {*NAMES, "well", "now", "so"}
    assert NAMES[0] in model.codecs.source.vocabulary
    codec = trained(way) / "bundle"
    assert (codec / "source" / "vocabulary.txt").is_file()
    assert not (codec / "extras").exists()


def test_a_word_of_the_second_sentence_alone_is_known_too(tmp_path: Path) -> None:
    rows = ["a b\tc d\tyes\n", "b a\td e\tno\n"] * 8
    (tmp_path / "train.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows))
    (tmp_path / "test.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows[:2]))
    text = RECIPE.format(folder=tmp_path, decoder=WAYS["features"]).replace("epochs: 12", "steps: 2")
    (tmp_path / "pairs.yaml").write_text(text)
    model = library.load(library.train(tmp_path / "pairs.yaml", tmp_path / "run").folder)
    assert set(model.codecs.source.vocabulary.ordinary) == set("abcde")


def test_the_commands_ask_and_explain(seqloom: Command, tmp_path: Path) -> None:
    run = trained("attention")
    asked = ["--text", "well three", "--extra", "other=four"]
    assert seqloom("predict", run, *asked).out == "yes\n"
    listed = seqloom("predict", run, *asked, "--n-best", "2", "--json", "--set", "search.strategy.kind=beam").out
    assert "no" in listed
    shown = json.loads(seqloom("explain", run, *asked[1:], "--json").out)
    assert shown["source_tokens"] == ["well", "three", "<eos>", "other:four", "other:<eos>"]
    [[between]] = shown["within_source"]
    assert [len(row) for row in between] == [5] * 5
    assert all(not any(row[:3]) for row in between[:3]), "the first sentence looks at the second only"
    assert all(not any(row[3:]) for row in between[3:])
    assert between[1][3] > 0.5, "three looks at four"
    told = seqloom("info", run).out
    assert "other shared" in told
    assert seqloom("evaluate", run, "--diagnose").code == 0
    for method in ("gradient", "occlusion"):
        assert seqloom("explain", run, *asked[1:], "--attribute", method).code == 0


def test_one_who_asks_is_explained_by_where_it_looked() -> None:
    found = library.load(trained("query")).explain({"source": "well three", "other": "four"})
    assert found.source == ("well", "three", "<eos>", "other:four", "other:<eos>")
    assert not found.weights[..., 3:].any()
    assert found.weights[0, 0, 0].argmax() == 1, "at the number"


def test_a_run_goes_on_in_another_run_with_new_words(seqloom: Command, tmp_path: Path) -> None:
    rows = ["seven\ttwelve\tno\n", "eleven\ttwelve\tyes\n"] * 8
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows))
    (tmp_path / "pairs.yaml").write_text(
        RECIPE.format(folder=tmp_path, decoder=WAYS["features"]).replace("epochs: 12", "epochs: 2")
    )
    more = ["--set", "training.extend_vocabulary=true", "--run", tmp_path / "run", "--from", trained("features")]
    assert seqloom("train", tmp_path / "pairs.yaml", *more).code == 0
    model = library.load(tmp_path / "run")
    assert "twelve" in model.codecs.source.vocabulary
    assert model.codecs.extras["other"].encode("twelve") == model.codecs.source.encode("twelve")


# --- recipes ---------------------------------------------------------------------------------------------------------

PAIRS = {"train": {"path": "a.tsv", "extras": {"other": 2}}}
SHARED = {"extras": {"other": {"use": "shared"}}}


def test_a_shared_extra_is_read_as_the_source_is_also_when_it_is_written_out(tmp_path: Path) -> None:
    source = {"tokenizer": "characters", "lowercase": True, "vocabulary": {"min_count": 2}}
    recipe = recipe_from({"data": PAIRS, "training": {"steps": 1}, "source": source, **SHARED}, "r.yaml")
    other = recipe.extras["other"]
    assert (other.tokenizer, other.lowercase, other.vocabulary) == (
        recipe.source.tokenizer,
        True,
        recipe.source.vocabulary,
    )
    (tmp_path / "r.yaml").write_text(render_yaml(recipe))
    assert load_recipe(tmp_path / "r.yaml") == recipe


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"extras": {"other": {"use": "shared", "lowercase": True}}},
            "extras.other.lowercase: a shared extra is read as the source is; leave lowercase out",
        ),
        (
            {"extras": {"other": {"use": "shared", "tokenizer": "characters"}}},
            "extras.other.tokenizer: a shared extra is read as the source is; leave tokenizer out",
        ),
        (
            {**SHARED, "model": {"kind": "joint"}},
            "extras.other.use: a joint model has no encoders; use: prefix",
        ),
        (
            {**SHARED, "model": {"kind": "language"}},
            "extras.other.use: a language model has no encoders; use: prefix",
        ),
        (
            {**SHARED, "model": {"encoder": {"kind": "spelled"}, "decoder": "label"}},
            "extras.other.use: only the words of the first source are known, so its encoder reads no other",
        ),
        (
            {**SHARED, "model": {"decoder": "tags"}},
            "extras: a tag belongs to a word of the source, and there is none for further sources",
        ),
        (
            {"extras": {"other": {"use": "prefix"}}, "model": {"decoder": {"kind": "label", "compare": "features"}}},
            "model.decoder.compare: there is no second source with an encoder; add extras: {other: {use: shared}}",
        ),
        (
            {**SHARED, "model": {"decoder": {"kind": "label", "query": "othr"}}},
            "model.decoder.query: 'othr': no extra is called so (did you mean \"other\"?)",
        ),
        (
            {"extras": {"other": {"use": "prefix"}}, "model": {"decoder": {"kind": "label", "query": "other"}}},
            "model.decoder.query: 'other': it stands before the source; add extras: {other: {use: shared}}",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(more: dict[str, object], said: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        recipe_from({"data": PAIRS, "training": {"steps": 1}, **more}, "r.yaml")
    assert (caught.value.code, caught.value.exit_code) == ("E_RECIPE", 2)
    assert said in caught.value.what, caught.value.what


@pytest.mark.parametrize("kind", ["luong", "rnn", "transformer", "monotonic", "label"])
def test_every_decoder_may_have_a_shared_extra(kind: str) -> None:
    recipe_from({"data": PAIRS, "training": {"steps": 1}, "model": {"decoder": kind}, **SHARED}, "r.yaml")
