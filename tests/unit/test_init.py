"""`seqloom init`: for every kind and size of data a recipe that is valid, says why, and trains."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commands import Command
from seqloom import train
from seqloom.api import init
from seqloom.api.draft import written
from seqloom.api.init import Choices, choose, guess_language
from seqloom.api.timing import estimated_seconds
from seqloom.config import kind_of, parse_yaml
from seqloom.data.readers import dataset_settings
from seqloom.recipe import Recipe, recipe_from

pytest_plugins = ["command_fixtures"]

ENGLISH = ["the", "cat", "dog", "house", "sees", "runs", "old", "red", "tree", "river", "man", "woman", "child", "near"]
RNG = random.Random(1)


def word() -> str:
    return "".join(RNG.choice("abcdefghij") for _ in range(RNG.randint(2, 9)))


def sentence() -> str:
    return " ".join(RNG.choice(ENGLISH) for _ in range(RNG.randint(4, 12))) + "."


def phonemes(letters: str) -> str:
    return " ".join({"a": "AA", "e": "EH", "i": "IY"}.get(letter, letter.upper()) for letter in letters)


def chinese() -> str:
    return "".join(chr(0x4E00 + RNG.randrange(600)) for _ in range(RNG.randint(8, 20)))


def pronunciation() -> tuple[str, str]:
    letters = word()
    return letters, phonemes(letters)


KINDS: dict[str, tuple[Callable[[], tuple[str, str]], tuple[str, str], list[str]]] = {
    "words": (lambda: (word(), word()), ("characters", "characters"), ["exact", "cer"]),
    "pronunciation": (pronunciation, ("characters", "symbols"), ["string_error", "per"]),
    "text": (lambda: (sentence(), sentence()), ("bpe", "bpe"), ["bleu", "chrf"]),
    "chinese": (lambda: (chinese(), sentence()), ("bpe", "bpe"), ["bleu", "chrf"]),
    "to chinese": (lambda: (sentence(), chinese()), ("bpe", "bpe"), ["bleu", "chrf"]),
    "records": (lambda: (word(), sentence()), ("characters", "bpe"), ["bleu", "chrf"]),
}


def drafted(path: Path, gpu: bool = False) -> tuple[Choices, Recipe]:
    choices = choose(dataset_settings(str(path)), gpu=gpu)
    raw = parse_yaml(written(choices, str(path), ("und", "und")), "draft")
    assert isinstance(raw, dict)
    return choices, recipe_from(raw, "draft")


def write(path: Path, make: Callable[[], tuple[str, str]], count: int) -> Path:
    path.write_text("".join("\t".join(make()) + "\n" for _ in range(count)))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gets_a_recipe_that_trains(kind: str, tmp_path: Path) -> None:
    make, tokenizers, metrics = KINDS[kind]
    choices, recipe = drafted(write(tmp_path / "pairs.tsv", make, 3_100))
    assert (kind_of(recipe.source.tokenizer), kind_of(recipe.target.tokenizer)) == tokenizers
    assert [kind_of(metric) for metric in recipe.evaluation.metrics] == metrics
    assert recipe.training.metric in metrics
    assert recipe.training.epochs == choices.epochs
    short = recipe.with_(
        training=recipe.training.with_(steps=2, validate_every=None),
        evaluation=recipe.evaluation.with_(validate_examples=2),
        data=recipe.data.with_(split=recipe.data.split.with_(dev=0.01, test=0.01)),
        runtime=recipe.runtime.with_(threads=1, device="cpu"),
    )
    assert train(short, tmp_path / "run").reason == "steps"
    assert estimated_seconds(short, choices, tries=1) > 0


def test_few_texts_are_cut_into_words_and_few_without_spaces_into_characters(tmp_path: Path) -> None:
    choices, _ = drafted(write(tmp_path / "pairs.tsv", lambda: (sentence(), chinese()), 500))
    assert (choices.source.tokenizer, choices.target.tokenizer) == ("words", "characters")


@pytest.mark.parametrize("kind", ["pronunciation", "text"])
def test_more_pairs_give_larger_models_less_dropout_and_fewer_passes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "pairs.tsv", KINDS[kind][0], 1_000)
    found = init.profile
    sizes = []
    for pairs in (1_000, 10_000, 126_000, 2_000_000):
        monkeypatch.setattr(init, "profile", lambda examples, limit, n=pairs: replace(found(examples, limit), pairs=n))
        choices, recipe = drafted(path)
        sizes.append(choices.sizes)
        assert recipe.training.validate_every is not None
        assert choices.warmup < choices.steps
        assert 5 <= choices.steps / recipe.training.validate_every <= 30
    assert [size.width for size in sizes] == sorted(size.width for size in sizes)
    assert [size.dropout for size in sizes] == sorted((size.dropout for size in sizes), reverse=True)
    assert [size.epochs for size in sizes] == sorted((size.epochs for size in sizes), reverse=True)
    if kind == "pronunciation":
        measured = sizes[2]  # what was found good on 126,000 pronunciations
        assert (measured.embedding, measured.width, measured.dropout, measured.batch) == (128, 256, 0.0, 1024)


@pytest.mark.parametrize(("pairs", "kind"), [(1_000, "luong"), (29_000, "transformer"), (2_000_000, "transformer")])
def test_text_gets_a_transformer_where_there_is_a_gpu_and_enough_of_it(
    pairs: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "pairs.tsv", KINDS["text"][0], 1_000)
    found = init.profile
    monkeypatch.setattr(init, "profile", lambda examples, limit: replace(found(examples, limit), pairs=pairs))
    choices, recipe = drafted(path, gpu=True)
    assert kind_of(recipe.model.decoder) == choices.sizes.decoder == kind
    assert kind_of(drafted(path, gpu=False)[1].model.decoder) == "luong"
    sampling = pairs < 1_000_000 and kind_of(recipe.source.tokenizer) == "bpe"
    assert ("sampling: 0.1" in written(choices, str(path), ("und", "und"))) == sampling
    assert recipe.task.r_drop == choices.sizes.r_drop == (1.0 if pairs == 29_000 else 0.0)


def test_sounds_follow_letters_from_left_to_right(tmp_path: Path) -> None:
    _, recipe = drafted(write(tmp_path / "pairs.tsv", KINDS["pronunciation"][0], 500))
    assert (kind_of(recipe.model.encoder), kind_of(recipe.model.decoder)) == ("convolution", "monotonic")


def test_long_targets_get_room(tmp_path: Path) -> None:
    choices, recipe = drafted(
        write(tmp_path / "pairs.tsv", lambda: (word(), " ".join(word() for _ in range(200))), 300)
    )
    assert recipe.search.limits.max_ratio > 20
    long = write(tmp_path / "long.tsv", lambda: ("x" * 700, word()), 50)
    choices, recipe = drafted(long)
    assert recipe.data.limits.max_source == choices.source.limit == 768


def test_sources_with_several_right_targets_are_merged(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{letters}\t{answer}\n" for letters in ("ab", "cd", "ef") for answer in ("x", "y")))
    assert drafted(path)[1].evaluation.merge_sources is True


def test_every_choice_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", pronunciation, 200)
    text = written(choose(dataset_settings(str(path))), str(path), ("en", "en-ipa"))
    for key in (
        "tokenizer:",
        "dropout:",
        "label_smoothing:",
        "epochs:",
        "metric:",
        "schedule:",
        "metrics:",
        "strategy:",
    ):
        line = next(line for line in text.splitlines() if key in line)
        assert "  # " in line, line


@pytest.mark.parametrize("name", ["pairs.tsv", "with space.tsv", "a:b #c.tsv", "日本.tsv", "123.tsv", "no", "it's.tsv"])
def test_any_file_name_survives_the_yaml(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(name), pronunciation, 50)
    _, recipe = drafted(Path(name))
    assert recipe.data.files() == {"train": [name]}


def test_languages_come_from_file_names_or_the_person(seqloom: Command, tmp_path: Path) -> None:
    assert [guess_language(name) for name in ("a.de", "a.en.gz", "x/a.pt-BR", "a.txt", "a", "a.tsv")] == [
        "de",
        "en",
        "pt-BR",
        "und",
        "und",
        "und",
    ]
    (tmp_path / "a.de").write_text("hund\nkatze\n")
    (tmp_path / "a.en").write_text("dog\ncat\n")
    answer = seqloom("init", tmp_path / "a.de", tmp_path / "a.en", "-o", "-", "-q")
    assert "languages: {source: de, target: en}" in answer.out
    chosen = seqloom("init", tmp_path / "a.de", tmp_path / "a.en", "-o", "-", "-q", "--source-language", "gsw")
    assert "languages: {source: gsw, target: en}" in chosen.out
    wrong = seqloom("init", tmp_path / "a.de", tmp_path / "a.en", "-o", "-", "--target-language", "?")
    assert "languages.target" in wrong.refused("E_RECIPE", 2)


def test_a_recipe_is_never_overwritten_unasked(seqloom: Command, tmp_path: Path) -> None:
    data, recipe = write(tmp_path / "pairs.tsv", pronunciation, 50), tmp_path / "r.yaml"
    recipe.write_text("mine")
    assert "--force" in seqloom("init", data, "--output", recipe).refused("E_USAGE", 2)
    assert recipe.read_text() == "mine"
    answer = seqloom("init", data, "--output", recipe, "--force")
    assert answer.code == 0
    assert "on this machine" in answer.err, "how long it will take"
    assert "only 50 pairs" in answer.err
    assert recipe.read_text().startswith("# Drafted by")


def test_data_that_cannot_be_drafted_for(seqloom: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert "no pairs" in seqloom("init", empty, "-o", "-").refused("E_EMPTY", 3)
    empty.write_text("one column\n")
    assert f"{empty}:1" in seqloom("init", empty, "-o", "-").refused("E_DATA", 3)
    assert "gone.tsv" in seqloom("init", tmp_path / "gone.tsv", "-o", "-").refused("E_FILE", 6)
    empty.write_bytes(b"a\xff\tb\n" * 3 + b"c\td\n")
    assert f"{empty}:1" in seqloom("init", empty, "-o", "-").refused("E_UTF8", 3)
    assert "on_bad_utf8: skip" in seqloom("init", empty, "-o", "-", "-q", "--on-bad-utf8", "skip").out


def test_json_lines(seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"source": word(), "target": [word(), word()]}) + "\n" for _ in range(20)))
    assert "merge_sources: true" in seqloom("init", path, "-o", "-", "-q").out
