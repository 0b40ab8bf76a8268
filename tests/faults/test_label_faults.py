"""What can be wrong with labels and tags: refused with the place and the fix, or counted and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Answer, Command

pytest_plugins = ["command_fixtures"]

CLASSES = """
data: {{train: {folder}/train.tsv, dev: {folder}/dev.tsv, test: {folder}/test.tsv}}
source: {{tokenizer: words}}
target: {{tokenizer: whole}}
model: {{source_embedding: {{width: 4}}, encoder: {{kind: bag, width: 4}}, decoder: {{kind: label, pooling: mean}}}}
batching: {{tokens: 64}}
training: {{steps: 4, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
TAGS = (
    CLASSES.replace("tokenizer: words", "tokenizer: symbols")
    .replace("tokenizer: whole", "tokenizer: symbols")
    .replace("kind: label, pooling: mean", "kind: tags")
)
PAIRS = "a b\tx\nb c\ty\nc a\tx\nd\ty\n"


@pytest.fixture
def trained(tmp_path: Path, seqloom: Command):
    """Train on these files and see how it ends; a set that is not given holds the usual pairs."""

    def give(recipe: str, pairs: str = PAIRS, **sets: str) -> Answer:
        for part in ("train", "dev", "test"):
            (tmp_path / f"{part}.tsv").write_text(sets.get(part, pairs))
        (tmp_path / "recipe.yaml").write_text(recipe.format(folder=tmp_path))
        return seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "--no-report")

    return give


def test_one_class_only(trained, tmp_path: Path) -> None:
    line = trained(CLASSES, train="a\tx\nb\tx\n").refused("E_DATA", 3)
    assert "all examples have the label 'x'" in line
    assert f"{tmp_path}/train.tsv" in line
    assert trained(CLASSES).code == 0, "the same command goes on once the data are mended"


def test_one_tag_only(trained) -> None:
    line = trained(TAGS, "a b\tx x\nb c\ty y\n", train="a b\tx x\nb\tx\n").refused("E_DATA", 3)
    assert "all words have the tag 'x'" in line


@pytest.mark.parametrize(("words", "tags", "told"), [("a b", "x", "2 words, but 1 tag"), ("a", "x y", "1 word, but 2")])
def test_other_tags_than_words(words: str, tags: str, told: str, trained, tmp_path: Path) -> None:
    tagged = "a b\tx y\nb c\ty x\n"
    line = trained(TAGS, tagged, train=f"{tagged}{words}\t{tags}\n").refused("E_ALIGN", 3)
    assert told in line
    assert f"{tmp_path}/train.tsv:3" in line


def test_other_tags_than_words_when_judged_or_scored(trained, tmp_path: Path, seqloom: Command) -> None:
    assert trained(TAGS, "a b\tx y\nb c\ty x\n").code == 0
    (tmp_path / "odd.tsv").write_text("a b\tx y\na b\tx\n")
    for command in ("evaluate", "score"):
        option = ["--data"] if command == "evaluate" else []
        line = seqloom(command, tmp_path / "run", *option, tmp_path / "odd.tsv").refused("E_ALIGN", 3)
        assert "2 words, but 1 tag" in line
        assert f"{tmp_path}/odd.tsv:2" in line


def test_a_column_file_with_a_word_that_has_no_tag(trained, tmp_path: Path) -> None:
    recipe = TAGS.replace("{folder}/train.tsv", "{{kind: columns, path: {folder}/train.tsv}}")
    line = trained(recipe, "a b\tx y\n", train="a\tx\nb\n\nc\ty\n").refused("E_DATA", 3)
    assert f"{tmp_path}/train.tsv:2" in line


def test_a_label_of_the_dev_set_alone_is_counted(trained) -> None:
    answer = trained(CLASSES, dev=PAIRS + "a\tz\n")
    assert answer.code == 0, answer
    assert "1 unseen_label" in answer.err


def test_only_labels_that_training_has_not(trained, tmp_path: Path, seqloom: Command) -> None:
    trained(CLASSES, dev="a\tz\n").refused("E_EMPTY", 3)
    assert trained(CLASSES).code == 0
    (tmp_path / "other.tsv").write_text("a\tz\nb\tz\n")
    answer = seqloom("evaluate", tmp_path / "run", "--data", tmp_path / "other.tsv", "--no-report")
    assert answer.code == 0, answer
    assert "caution: 2 of 2 wanted labels are none that training has" in answer.err


@pytest.mark.parametrize(
    ("recipe", "target", "told"),
    [(CLASSES, "z", "the model cannot say this"), (TAGS, "x z", "cannot say this"), (TAGS, "x", "1 tags for 2 words")],
)
def test_an_answer_that_no_model_could_give_is_not_explained(
    recipe: str, target: str, told: str, trained, tmp_path: Path, seqloom: Command
) -> None:
    assert trained(recipe, "a b\tx y\nb c\ty x\n" if recipe is TAGS else PAIRS).code == 0
    for more in ([], ["--attribute", "occlusion"]):
        line = seqloom("explain", tmp_path / "run", "a b", "--target", target, *more).refused("E_USAGE", 2)
        assert f"--target '{target}'" in line
        assert told in line
    possible = "x y" if recipe is TAGS else "x"
    assert seqloom("explain", tmp_path / "run", "a b", "--target", possible).code == 0


def test_labels_of_several_words_are_told_of(trained) -> None:
    pairs = PAIRS.replace("\tx", "\tvery good").replace("\ty", "\tvery bad")
    answer = trained(CLASSES, pairs)
    assert answer.code == 0, answer
    assert "caution: accuracy counts the words of labels such as 'very" in answer.err
    assert "caution" not in trained(CLASSES.replace("accuracy", "exact"), pairs).err


@pytest.mark.parametrize("recipe", [CLASSES, TAGS])
def test_nothing_to_read(recipe: str, trained, tmp_path: Path, seqloom: Command) -> None:
    assert trained(recipe, "a b\tx y\nb c\ty x\n" if recipe is TAGS else PAIRS).code == 0
    answer = seqloom("predict", tmp_path / "run", "--text", "", "--text", "zzz")
    assert answer.code == 0, answer
    assert [bool(line) for line in answer.out.split("\n")[:2]] == [False, True]


@pytest.mark.parametrize("noise", ["drop", "swap", "span"])
def test_noise_that_would_move_tagged_words(noise: str, trained) -> None:
    recipe = TAGS.replace("batching:", f"task: {{{{source_noise: {{{{{noise}: 0.1}}}}}}}}\nbatching:")
    line = trained(recipe, "a b\tx y\nb c\ty x\n").refused("E_RECIPE", 2)
    assert "move the words that tags belong to" in line
