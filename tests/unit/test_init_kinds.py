"""`seqloom init` for labels, tags and plain text: a recipe that is valid, says why, and trains."""

from __future__ import annotations

import json
import random
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import Command
from seqloom import train
from seqloom.api import init
from seqloom.api.draft import written
from seqloom.api.init import Choices, choose
from seqloom.api.timing import estimated_seconds
from seqloom.config import Plain, kind_of, parse_yaml
from seqloom.data.kinds import Task
from seqloom.data.readers import dataset_settings
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe, recipe_from

pytest_plugins = ["command_fixtures"]

GOOD, BAD, PLAIN = ["lovely", "great", "warm"], ["dull", "awful", "cold"], ["film", "story", "actor", "song", "end"]
TAGS = {**dict.fromkeys(GOOD + BAD, "ADJ"), **dict.fromkeys(PLAIN, "NOUN"), "the": "DET", "is": "VERB"}
RNG = random.Random(1)


def review() -> tuple[str, str]:
    words, label = RNG.choice([(GOOD, "good"), (BAD, "bad")])
    return f"the {RNG.choice(PLAIN)} {RNG.randrange(1000)} is {RNG.choice(words)}", label


def sentence() -> tuple[str, str]:
    words = ["the", RNG.choice(PLAIN), "is", RNG.choice(GOOD + BAD)]
    return " ".join(words), " ".join(TAGS[word] for word in words)


def chunk() -> tuple[str, str]:
    name = f"{RNG.choice('ABCDE')}{RNG.choice(PLAIN)}"
    return f"the {RNG.choice(PLAIN)} of {name} {name} is", "O O O B-PER I-PER O"


def columns(count: int) -> str:
    rows = ("\n".join(map("\t".join, zip(words.split(), tags.split(), strict=True))) for words, tags in _many(count))
    return "\n\n".join(rows) + "\n"


def _many(count: int) -> list[tuple[str, str]]:
    return [sentence() for _ in range(count)]


def write(folder: Path, task: Task, count: int = 300) -> Path:
    """A file of this kind, known by its look alone."""
    if task == "tags":
        (folder / "words.tsv").write_text(columns(count))
        return folder / "words.tsv"
    if task == "language":
        (folder / "text.txt").write_text("".join(f"{review()[0]}.\n{review()[0]}!\n\n" for _ in range(count)))
        return folder / "text.txt"
    (folder / "reviews.tsv").write_text("".join("\t".join(review()) + "\n" for _ in range(count)))
    return folder / "reviews.tsv"


def drafted(dataset: Plain, gpu: bool = False, task: Task | None = None) -> tuple[Choices, Recipe]:
    choices = choose(dataset_settings(dataset), gpu=gpu, task=task)
    raw = parse_yaml(written(choices, dataset, ("und", "und")), "draft")
    assert isinstance(raw, dict)
    return choices, recipe_from(raw, "draft")


def short(recipe: Recipe) -> Recipe:
    """The same, for a moment."""
    return recipe.with_(
        training=recipe.training.with_(steps=2, validate_every=None),
        data=recipe.data.with_(split=recipe.data.split.with_(dev=0.1, test=0.1)),
        runtime=recipe.runtime.with_(threads=1, device="cpu"),
    )


def metrics(recipe: Recipe) -> list[str]:
    return [kind_of(metric) for metric in recipe.evaluation.metrics]


def test_labels(tmp_path: Path) -> None:
    choices, recipe = drafted(str(write(tmp_path, "label")))
    assert choices.task == "label"
    assert (kind_of(recipe.source.tokenizer), kind_of(recipe.target.tokenizer)) == ("words", "whole")
    assert (kind_of(recipe.model.parts["encoder"]), kind_of(recipe.model.parts["decoder"])) == ("rnn", "label")
    assert (metrics(recipe), recipe.training.metric) == (["accuracy", "f1"], "accuracy")
    assert recipe.evaluation.merge_sources is False
    assert train(short(recipe), tmp_path / "run").reason == "steps"
    assert estimated_seconds(recipe, choices, tries=1) > 0


def test_single_words_with_a_label_are_read_letter_by_letter(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"{'abcdefgh'[i % 8]}{i}o\tm\n{'abcdefgh'[i % 8]}{i}a\tf\n" for i in range(100)))
    choices, recipe = drafted(str(path))
    assert (choices.task, kind_of(recipe.source.tokenizer)) == ("label", "characters")


@pytest.mark.parametrize("form", ["columns", "tsv"])
def test_tags(form: str, tmp_path: Path) -> None:
    dataset: Plain = {"kind": "columns", "path": str(write(tmp_path, "tags")), "separator": "tab"}
    if form == "tsv":
        (tmp_path / "x.tsv").write_text("".join("\t".join(pair) + "\n" for pair in _many(300)))
        dataset = str(tmp_path / "x.tsv")
    choices, recipe = drafted(dataset)
    assert choices.task == "tags"
    assert (kind_of(recipe.source.tokenizer), kind_of(recipe.target.tokenizer)) == ("characters", "symbols")
    encoder, decoder = recipe.model.parts["encoder"], recipe.model.parts["decoder"]
    assert (kind_of(encoder), kind_of(decoder)) == ("spelled", "tags")
    assert decoder.model_dump()["transitions"] is True
    assert recipe.search.strategy.model_dump()["size"] == 8
    assert (metrics(recipe), recipe.training.metric) == (["accuracy"], "accuracy")
    assert train(short(recipe), tmp_path / "run").reason == "steps"
    assert estimated_seconds(recipe, choices, tries=1) > 0


def test_tags_of_spans_are_judged_by_spans(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("".join("\t".join(chunk()) + "\n" for _ in range(200)))
    choices, recipe = drafted(str(tmp_path / "x.tsv"))
    assert (choices.task, metrics(recipe), recipe.training.metric) == ("tags", ["accuracy", "span_f1"], "span_f1")


def test_text(tmp_path: Path) -> None:
    path = write(tmp_path, "language")
    choices, recipe = drafted(str(path))
    assert (choices.task, kind_of(recipe.model)) == ("language", "language")
    assert recipe.source == recipe.target
    assert kind_of(recipe.target.tokenizer) == "characters"
    assert kind_of(recipe.search.strategy) == "sample"
    assert recipe.evaluation.validate_examples == 0
    assert (recipe.data.sets["train"][0].model_dump()["unit"], recipe.batching.window) == ("documents", 256)
    assert train(short(recipe), tmp_path / "run").reason == "steps"
    assert estimated_seconds(recipe, choices, tries=1) > 0
    one = drafted({"path": str(path), "unit": "stream"})[1]
    assert one.data.dev is not None, "lines of one text cannot be held out: a file is asked for"
    path.write_text("".join(f"{review()[0]}.\n" for _ in range(100)))
    lines = drafted(str(path))[1]
    assert (lines.data.sets["train"][0].model_dump()["unit"], lines.batching.window) == ("lines", None)


@pytest.mark.parametrize(
    ("lines", "gpu", "tokenizer", "decoder"),
    [
        (1_000, False, "characters", "rnn"),
        (30_000, False, "characters", "rnn"),
        (30_000, True, "characters", "transformer"),
        (1_000_000, False, "bpe", "rnn"),
        (1_000_000, True, "bpe", "transformer"),
        (100_000_000, True, "bpe", "transformer"),
    ],
)
def test_the_size_of_a_text_chooses_its_model(
    lines: int, gpu: bool, tokenizer: str, decoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = init.profile
    monkeypatch.setattr(init, "profile", lambda examples, limit: replace(found(examples, limit), pairs=lines))
    _, recipe = drafted(str(write(tmp_path, "language")), gpu=gpu)
    assert (kind_of(recipe.target.tokenizer), kind_of(recipe.model.parts["decoder"])) == (tokenizer, decoder)


@pytest.mark.parametrize("task", ["label", "tags"])
def test_more_examples_give_larger_models_less_dropout_and_fewer_passes(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, found, sizes = write(tmp_path, task), init.profile, []
    dataset: Plain = {"kind": "columns", "path": str(path)} if task == "tags" else str(path)
    for pairs in (1_000, 10_000, 200_000, 2_000_000):
        monkeypatch.setattr(init, "profile", lambda examples, limit, n=pairs: replace(found(examples, limit), pairs=n))
        choices, _ = drafted(dataset)
        sizes.append(choices.sizes)
    assert [size.width for size in sizes] == sorted(size.width for size in sizes)
    assert [size.dropout for size in sizes] == sorted((size.dropout for size in sizes), reverse=True)
    assert [size.epochs for size in sizes] == sorted((size.epochs for size in sizes), reverse=True)


@pytest.mark.parametrize("task", ["label", "tags", "language"])
def test_the_head_says_what_was_guessed_and_how_to_say_otherwise(task: Task, tmp_path: Path) -> None:
    path = write(tmp_path, task)
    dataset: Plain = {"kind": "columns", "path": str(path)} if task == "tags" else str(path)
    text = written(choose(dataset_settings(dataset)), dataset, ("und", "und"))
    head = text.split("\n\n")[0]
    assert "# Taken for " in head
    assert "seqloom init --task" in head
    for key in ("tokenizer:", "kind: " + {"label": "label", "tags": "tags", "language": "rnn"}[task], "strategy:"):
        line = next(line for line in text.splitlines() if key in line and not line.startswith("#"))
        assert "  # " in line, line


def test_what_was_guessed_wrongly_can_be_said(tmp_path: Path) -> None:
    path = str(write(tmp_path, "label"))
    choices, recipe = drafted(path, task="transduce")
    assert (choices.asked, choices.guess.told.endswith("(as asked for)")) == (True, True)
    assert kind_of(recipe.model.parts["decoder"]) == "luong"
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{review()[0]}\tlabel {i}\n" for i in range(50)))
    assert kind_of(drafted(str(pairs), task="label")[1].model.parts["decoder"]) == "label"
    assert kind_of(drafted(str(pairs), task="tags")[1].model.parts["decoder"]) == "tags"


@pytest.mark.parametrize(
    ("dataset", "task", "said"),
    [
        ({"path": "reviews.tsv"}, "language", "{kind: text, path: FILE}"),
        ({"kind": "text", "path": "reviews.tsv"}, "label", "{kind: tsv, path: FILE}"),
        ({"path": "reviews.tsv", "constants": {"lang": "x"}}, "tags", "leave extras out"),
    ],
)
def test_what_cannot_be_is_refused(
    dataset: dict[str, Plain], task: Task, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "label")
    with pytest.raises(SeqloomError) as error:
        choose(dataset_settings(dataset), task=task)
    assert error.value.code == "E_USAGE"
    assert error.value.fix == said or said in (error.value.fix or "")


def test_sources_that_name_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = []
    for number in range(60):
        np.save(tmp_path / f"{number}.npy", rng.normal(size=(8 + number % 5, 3)).astype("float32"))
        lines.append(f"{number}.npy\t{'high' if number % 2 else 'low'}\n")
    (tmp_path / "arrays.tsv").write_text("".join(lines))
    choices, recipe = drafted(str(tmp_path / "arrays.tsv"))
    assert (choices.task, kind_of(recipe.source), recipe.data.in_files) == ("label", "frames", True)
    assert choices.files is not None
    assert choices.files.mean == pytest.approx(10.0, abs=0.5)
    few = recipe.with_(training=recipe.training.with_(epochs=None, steps=2, validate_every=2))
    assert train(few, tmp_path / "run").reason == "steps"


def test_sources_that_name_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(30):
        image.new("RGB", (20, 20), (8 * number, 0, 0)).save(tmp_path / f"{number}.PNG")
    lines = (f"{number}.PNG\ta picture that has the number {number} and is red\n" for number in range(30))
    (tmp_path / "pictures.tsv").write_text("".join(lines))
    choices, recipe = drafted(str(tmp_path / "pictures.tsv"))
    assert (choices.task, kind_of(recipe.source)) == ("transduce", "pixels")
    assert kind_of(recipe.model.parts["encoder"]) == "cnn"


def test_sources_that_name_sounds(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("kaldi_native_fbank")
    for number in range(30):
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(bytes(2 * 8_000))
    lines = (f"{number}.wav\tsomebody says the number {number} and more\n" for number in range(30))
    (tmp_path / "sounds.tsv").write_text("".join(lines))
    choices, recipe = drafted(str(tmp_path / "sounds.tsv"))
    assert (choices.task, kind_of(recipe.source)) == ("transduce", "sound")
    assert (recipe.model.has_ctc, recipe.training.metric) == (True, "wer")


def test_a_source_that_names_no_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "arrays.tsv").write_text("".join(f"{number}.npy\tx\n" for number in range(30)))
    with pytest.raises(SeqloomError) as error:
        choose(dataset_settings(str(tmp_path / "arrays.tsv")))
    assert error.value.code == "E_FILE"
    assert "arrays.tsv:1" in error.value.line


def test_retrieval_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "replies.tsv"
    path.write_text("".join(f"what is the answer to {i} here\tthe answer to {i} is {i + 1}\n" for i in range(80)))
    assert drafted(str(path))[0].task == "transduce", "pairs could be written as well"
    recipe = drafted(str(path), task="retrieve")[1]
    assert recipe.model.ranks
    assert "retrieve" in written(drafted(str(path))[0], str(path), ("und", "und")).split("\n\n")[0]
    few = recipe.with_(training=recipe.training.with_(epochs=1))
    assert train(few, tmp_path / "run").reason == "epochs"


def test_retrieval_where_both_sides_are_cut_in_their_own_ways(tmp_path: Path) -> None:
    path = tmp_path / "numbers.tsv"
    path.write_text("".join(f"{i}\tthe number after {i - 1} is this one\n" for i in range(1000, 1080)))
    recipe = drafted(str(path), task="retrieve")[1]
    assert recipe.source != recipe.target
    few = recipe.with_(training=recipe.training.with_(epochs=1))
    assert train(few, tmp_path / "run").reason == "epochs"


def test_the_command_line(seqloom: Command, tmp_path: Path) -> None:
    words = write(tmp_path, "tags")
    answer = seqloom("init", words, "-o", "-")
    assert answer.code == 0, answer.err
    assert "kind: columns" in answer.out
    assert "taken for tags" in answer.err
    assert "--task says otherwise" in answer.err
    assert "kind: language" in seqloom("init", write(tmp_path, "label"), "-o", "-", "-q", "--task", "language").out
    wrong = seqloom("init", words, "-o", "-", "--task", "tag").refused("E_USAGE", 2)
    assert 'did you mean "tags"?' in wrong
    swapped = tmp_path / "swapped.tsv"
    swapped.write_text("".join(f"{label}\t{text}\n" for text, label in (review() for _ in range(300))))
    assert "the other way round: [1, 0]" in seqloom("init", swapped, "-o", "-").err
    records = tmp_path / "x.jsonl"
    records.write_text(
        "".join(json.dumps({"text": text, "y": label}) + "\n" for text, label in (review() for _ in range(300)))
    )
    spec = f"{{path: {records}, source: text, target: y}}"
    assert "kind: label" in seqloom("init", spec, "-o", "-", "-q").out
