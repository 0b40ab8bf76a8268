"""Runs that rank texts: what is missing, stale, damaged, out of place or of no meaning is one line with the fix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import Command
from commands import trained as trained_generator
from retrieval import trained, write_recipe
from seqloom import SeqloomError
from seqloom.api.ranking import evaluate_ranking
from seqloom.api.retriever import load_retriever

pytest_plugins = ["command_fixtures"]

TEXT = "tell me of red and sea or sky"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained(), tmp_path / "run"))


@pytest.fixture
def indexed(run: Path, seqloom: Command) -> Path:
    assert seqloom("index", run).code == 0
    return run


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_generator(), tmp_path / "generator"))


# --- the index ---


def test_no_index_yet(run: Path, seqloom: Command) -> None:
    for command in (("predict", run, "--text", TEXT), ("explain", run, TEXT)):
        line = seqloom(*command).refused("E_BUNDLE", 4)
        assert "there is no index" in line
        assert f"'seqloom index {run}'" in line
    elsewhere = seqloom("predict", run, "--text", TEXT, "--index", run / "nowhere").refused("E_BUNDLE", 4)
    assert f"--output {run / 'nowhere'}" in elsewhere


@pytest.mark.parametrize("text", ["", "\n \n\t\n"])
def test_an_empty_file_of_candidates(text: str, run: Path, seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "none.txt"
    path.write_text(text)
    line = seqloom("index", run, path).refused("E_EMPTY", 3)
    assert str(path) in line
    assert not (run / "index").exists()


def test_candidates_that_are_all_too_long(run: Path, seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("it " * 40 + "\n")
    assert "1 over the recipe's maximum" in seqloom("index", run, path).refused("E_EMPTY", 3)


def test_no_such_file_of_candidates(run: Path, seqloom: Command) -> None:
    seqloom("index", run, run / "missing.txt").refused("E_FILE", 6)


def test_bytes_that_are_not_utf8(run: Path, seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(b"it is air\n\xff\n")
    assert f"{path}:2" in seqloom("index", run, path).refused("E_UTF8", 3)


def test_an_index_takes_the_place_of_nothing_else(run: Path, seqloom: Command, tmp_path: Path) -> None:
    other = tmp_path / "mine"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    assert "something else" in seqloom("index", run, "--output", other).refused("E_USAGE", 2)
    assert (other / "letter.txt").read_text() == "dear"


def test_an_index_of_other_weights(indexed: Path, seqloom: Command) -> None:
    path = indexed / "index" / "card.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "weights": "0" * 64}))
    line = seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)
    assert "the index is of other weights than the run has now" in line
    assert f"'seqloom index {indexed}'" in line
    assert seqloom("index", indexed).code == 0
    assert seqloom("predict", indexed, "--text", TEXT).code == 0


def test_a_run_that_was_trained_on(indexed: Path, seqloom: Command) -> None:
    """Really other weights: the same recipe with another seed in the same folder."""
    seed = ("--set", "runtime.seed=7", "--set", "training.epochs=1")
    assert seqloom("train", indexed / "recipe.yaml", "--run", indexed, "--replace", *seed).code == 0
    if (indexed / "index").exists():
        assert "other weights" in seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)
    else:
        seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)


@pytest.mark.parametrize("name", ["vectors.safetensors", "candidates.txt"])
def test_a_damaged_index(name: str, indexed: Path, seqloom: Command) -> None:
    path = indexed / "index" / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))
    assert "sha256 differs" in seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)
    path.write_bytes(bytes(data[:-1]))
    assert "bytes, found" in seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', "\x00"])
def test_a_damaged_card(text: str, indexed: Path, seqloom: Command) -> None:
    (indexed / "index" / "card.json").write_text(text)
    seqloom("predict", indexed, "--text", TEXT).refused("E_BUNDLE", 4)


def test_an_index_of_a_newer_format(indexed: Path, seqloom: Command) -> None:
    path = indexed / "index" / "card.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "seqloom": "9.1"}))
    assert "needs seqloom >= 9.1" in seqloom("predict", indexed, "--text", TEXT).refused("E_FORMAT", 4)


# --- what is asked ---


@pytest.mark.parametrize("top", [0, -1, "many"])
def test_top_is_a_number_from_one(top: object, indexed: Path, seqloom: Command) -> None:
    assert "--top" in seqloom("predict", indexed, "--text", TEXT, "--top", top).refused("E_USAGE", 2)


def test_more_than_the_index_has(indexed: Path, seqloom: Command) -> None:
    line = seqloom("predict", indexed, "--text", TEXT, "--top", 100_000).refused("E_USAGE", 2)
    assert "top 100,000: the index has " in line
    assert "at most --top " in line


def test_several_candidates_are_no_plain_text(indexed: Path, seqloom: Command) -> None:
    line = seqloom("predict", indexed, "--text", TEXT, "--top", 2, "--format", "text").refused("E_USAGE", 2)
    assert "--top 2" in line


@pytest.mark.parametrize(
    "options",
    [
        ["--beam", 5],
        ["--greedy"],
        ["--sample"],
        ["-n", 3],
        ["--must", "air"],
        ["--prefix", "it"],
        ["--int8"],
        ["--stream"],
    ],
)
def test_nothing_is_searched_for(options: list[object], indexed: Path, seqloom: Command) -> None:
    line = seqloom("predict", indexed, "--text", TEXT, *options).refused("E_USAGE", 2)
    assert "this run ranks texts and cannot do: --" in line


def test_a_source_over_the_maximum(indexed: Path, seqloom: Command) -> None:
    long = "tell " * 40
    seqloom("predict", indexed, "--text", long).refused("E_LONG", 3)
    assert seqloom("predict", indexed, "--text", long, "--on-long", "skip").out.strip() == ""
    assert "whole source" in seqloom("predict", indexed, "--text", long, "--on-long", "split").refused("E_USAGE", 2)


def test_nothing_is_ranked_by_vectors_that_are_not_numbers(indexed: Path) -> None:
    """Weights may be finite, as a bundle's are, and yet too large to be reckoned with."""
    retriever = load_retriever(indexed)
    for weights in retriever.network.parameters():
        weights.data.fill_(1e38)
    for ask in (lambda: retriever(TEXT), lambda: retriever.indexed(["it is air"]), lambda: evaluate_ranking(retriever)):
        with pytest.raises(SeqloomError, match=r"E_DIVERGED.*the model's vectors are not numbers"):
            ask()


def test_unknown_words_only(indexed: Path, seqloom: Command) -> None:
    told = json.loads(seqloom("predict", indexed, "--text", "Ω ж", "--json").out)
    assert told["unknown"] == 1.0
    assert abs(told["candidates"][0]["score"]) <= 1.0 + 1e-6


@pytest.mark.parametrize(
    "command",
    [
        ("score", "RUN", "PAIRS"),
        ("compare", "RUN", "RUN"),
        ("export", "RUN"),
        ("lexicon", "RUN"),
        ("align", "RUN", "PAIRS"),
        ("average", "RUN"),
        ("bench", "RUN"),
        ("predict", "OTHER", "--fuse", "RUN", "--text", "abc"),
    ],
)
def test_commands_that_are_not_for_it(
    command: tuple[str, ...], run: Path, generator: Path, seqloom: Command, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n")
    words = {"RUN": run, "OTHER": generator, "PAIRS": pairs}
    line = seqloom(*(words.get(word, word) for word in command)).refused("E_USAGE", 2)
    assert "this run ranks texts and writes none (model: dual)" in line
    assert "'predict --top'" in line


@pytest.mark.parametrize(
    "options", [["--diagnose"], ["--beam", 3], ["--plot", "x"], ["--ngrams", 2], ["--report", "x"]]
)
def test_evaluations_that_are_not_for_it(options: list[object], run: Path, seqloom: Command) -> None:
    assert "cannot do: --" in seqloom("evaluate", run, *options).refused("E_USAGE", 2)


@pytest.mark.parametrize("among", ["0", "1", "-4", "few", "1.5"])
def test_among_how_many(among: str, run: Path, seqloom: Command) -> None:
    assert "--among" in seqloom("evaluate", run, "--among", among).refused("E_USAGE", 2)


def test_among_more_than_there_are(run: Path, seqloom: Command) -> None:
    line = seqloom("evaluate", run, "--among", 5000).refused("E_USAGE", 2)
    assert "1 of 5000: the set has " in line


def test_a_metric_of_one_text(run: Path, seqloom: Command) -> None:
    assert "bleu judges one text" in seqloom("evaluate", run, "--metric", "bleu").refused("E_USAGE", 2)


@pytest.mark.parametrize("options", [["--tree"], ["--html", "x.html"], ["--attribute", "gradient"], ["--states"]])
def test_explanations_that_are_not_for_it(options: list[object], indexed: Path, seqloom: Command) -> None:
    assert "cannot do: --" in seqloom("explain", indexed, TEXT, *options).refused("E_USAGE", 2)


def test_explain_needs_texts(indexed: Path, seqloom: Command) -> None:
    assert "nothing to explain" in seqloom("explain", indexed).refused("E_USAGE", 2)
    assert "empty" in seqloom("explain", indexed, " ").refused("E_USAGE", 2)
    assert "--target" in seqloom("explain", indexed, TEXT, "--target", "").refused("E_USAGE", 2)


# --- a run of another kind ---


def test_a_run_that_writes_texts(generator: Path, seqloom: Command) -> None:
    assert "ranks none (model: encoder_decoder)" in seqloom("index", generator).refused("E_USAGE", 2)
    for option in (["--top", 5], ["--index", generator]):
        line = seqloom("predict", generator, "--text", "abc", *option).refused("E_USAGE", 2)
        assert "only for a run that ranks texts (model: dual)" in line
    assert "--among" in seqloom("evaluate", generator, "--among", 10).refused("E_USAGE", 2)


# --- recipes ---


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["evaluation.metrics=[bleu]", "training.metric=nll"], "evaluation.metrics: bleu judges one text"),
        (["task.label_smoothing=0.1"], "task: a dual model has one loss"),
        (["search.strategy.size=3"], "search: a dual model compares all candidates"),
        (["training.accumulate=2"], "training.accumulate: an example is held against those of its own batch"),
        (["model.target_encoder=bag"], "target_encoder: one encoder reads both sides"),
        (["model.encoder=spelled"], "only the words of sources are known"),
        (["model.temperature=0"], "temperature"),
        (["model.temperature=.nan"], "temperature"),
        (["model.projection=null", "model.hidden=4"], "projection: null, but hidden"),
        (["target.lowercase=true"], "one embedding, so one vocabulary"),
        (["evaluation.among=1"], "among"),
        (["model.pooling=first"], "pooling"),
    ],
)
def test_recipes_that_make_no_sense(settings: list[str], words: str, seqloom: Command, tmp_path: Path) -> None:
    options = [word for one in settings for word in ("--set", one)]
    line = seqloom("train", write_recipe(tmp_path), "--run", tmp_path / "new", *options).refused("E_RECIPE", 2)
    assert words in line
    assert not (tmp_path / "new").exists()


def test_among_is_for_models_that_rank(generator: Path, seqloom: Command, tmp_path: Path) -> None:
    recipe = generator / "recipe.yaml"
    line = seqloom("train", recipe, "--run", tmp_path / "new", "--set", "evaluation.among=10").refused("E_RECIPE", 2)
    assert "evaluation.among: only a dual model ranks given texts" in line
