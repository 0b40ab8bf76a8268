"""The data report of labels, tags and plain text: each kind of trouble is found where it was put."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import Command
from scenes import write_blocks
from seqloom.api.check import check_dataset
from seqloom.data import images, named
from seqloom.data.kinds import Task
from seqloom.data.readers import Example, dataset_settings
from seqloom.data.report import WHY, DataReport, examine
from seqloom.errors import SeqloomError
from signals import write_waves
from tones import write_tones

pytest_plugins = ["command_fixtures"]

PLACES = ["Rome", "Oslo", "Lima", "Cairo", "Quito"]


def labelled(count: int = 60, start: int = 0) -> list[tuple[str, str]]:
    return [(f"who went to {PLACES[i % 5]} in {1900 + i}", ("good", "bad")[i % 2]) for i in range(start, start + count)]


def tagged(count: int = 60, start: int = 0) -> list[tuple[str, str]]:
    return [(f"{PLACES[i % 5]} has {i} rivers", "PROPN VERB NUM NOUN") for i in range(start, start + count)]


def examples(pairs: list[tuple[str, str]], file: str = "train.tsv") -> list[Example]:
    return [Example(source, (target,), file, line) for line, (source, target) in enumerate(pairs, 1)]


def found(report: DataReport) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    return {(finding.set, finding.kind): (finding.count, finding.where) for finding in report.findings}


def report(task: Task, train: list[tuple[str, str]], test: list[tuple[str, str]] | None = None) -> DataReport:
    return examine(examples(train), test=None if test is None else examples(test, "test.tsv"), task=task)


# --- labels ------------------------------------------------------------------------------------------------------


def test_labels_are_counted_for_each_set() -> None:
    told = report("label", [*labelled(), ("a third one", "bad")], labelled(10, 100))
    assert told.findings == ()
    assert told.as_dict()["labels"] == {"train": {"bad": 31, "good": 30}, "test": {"good": 5, "bad": 5}}
    lines = [line.split() for line in told.lines()]
    assert ["2", "different", "labels", "train", "share", "test", "share"] in lines
    assert ["bad", "31", "50.8", "%", "5", "50.0", "%"] in lines
    assert "train: 61 examples" in told.lines()


def test_a_table_has_at_most_twenty_rows() -> None:
    told = report("label", [(f"text {i}", f"label{i % 30:02}") for i in range(90)])
    assert sum(line.strip().startswith("label") for line in told.lines()) == 20
    assert "    ... and 10 more" in told.lines()


def test_one_label_alone_is_an_error() -> None:
    told = report("label", [(f"text {i}", "spam") for i in range(30)])
    assert found(told) == {("train", "one_label"): (30, ("train.tsv:1 (spam)",))}
    assert told.findings[0].severity == "error"
    assert "uneven" not in str(told.findings)


def test_labels_that_stand_once_are_named_with_their_lines() -> None:
    told = report("label", [("text", "label"), *labelled(), ("who knows", "godo")])
    assert found(told)["train", "label_once"] == (2, ("train.tsv:1 (label)", "train.tsv:62 (godo)"))


def test_labels_that_training_has_not_are_named_with_their_lines() -> None:
    told = report("label", labelled(), [*labelled(3, 100), ("a", "ugly"), ("b", "ugly"), ("c", "odd")])
    assert found(told) == {("test", "unseen_label"): (3, ("test.tsv:4 (ugly)", "test.tsv:6 (odd)"))}


def test_contradictions_name_both_lines_and_labels() -> None:
    source, label = labelled()[4]
    told = report("label", [*labelled(), (source, "bad"), (source, label)])
    assert label == "good"
    assert found(told)["train", "several_labels"] == (1, ("train.tsv:61 (bad) = train.tsv:5 (good)",))
    assert found(told)["train", "duplicate_pairs"][0] == 1
    assert ("train", "several_targets") not in found(told), "said once"


def test_labels_that_differ_in_case_or_blanks_alone() -> None:
    told = report(
        "label", [*labelled(), ("some text", "Good"), ("other text", "Good"), ("more", "bad "), ("m", "bad ")]
    )
    count, where = found(told)["train", "similar_labels"]
    assert count == 2
    assert where == ("train.tsv:1 (good) = train.tsv:61 (Good)", "train.tsv:2 (bad) = train.tsv:63 (bad )")


def test_what_is_wrong_with_a_translation_is_fine_with_a_label() -> None:
    """Short labels, long sources, labels in other letters or equal to their source."""
    pairs = [*labelled(), ("good", "good"), ("word " * 20, "good"), ("что это", "плохо"), ("ещё одно", "плохо")]
    assert {kind for _, kind in found(report("label", pairs))} <= {"odd_script_source", "long_source"}


# --- tags --------------------------------------------------------------------------------------------------------


def test_sentences_that_have_not_a_tag_for_each_word() -> None:
    told = report("tags", [*tagged(), ("Oslo has no sea", "PROPN VERB DET"), ("It is", "PRON VERB ADJ")])
    count, where = found(told)["train", "uneven_tags"]
    assert (count, where) == (2, ("train.tsv:61 (4 words, 3 tags)", "train.tsv:62 (2 words, 3 tags)"))
    assert told.findings[0].severity == "error"
    assert "(E_ALIGN)" in told.findings[0].why, "as the error of training is called"


def test_tags_are_counted_by_words() -> None:
    told = report("tags", [*tagged(), ("well then", "INTJ ADV"), ("go", "verb")], [("so", "ADV"), ("hi", "SYM")])
    assert told.as_dict()["labels"]["train"] == {
        "PROPN": 60,
        "VERB": 60,
        "NUM": 60,
        "NOUN": 60,
        "INTJ": 1,
        "ADV": 1,
        "verb": 1,
    }  # type: ignore[index]
    assert found(told)["train", "tag_once"][1] == ("train.tsv:61 (INTJ)", "train.tsv:61 (ADV)", "train.tsv:62 (verb)")
    assert found(told)["train", "similar_tags"][1] == ("train.tsv:1 (VERB) = train.tsv:62 (verb)",)
    assert found(told)["test", "unseen_label"] == (1, ("test.tsv:2 (SYM)",))
    assert "train: 62 sentences" in told.lines()
    assert found(report("tags", [("a b", "X X"), ("c", "X")]))["train", "one_tag"][0] == 3


# --- plain text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["lines", "documents", "stream"])
def test_lines_and_documents_of_a_text_however_it_is_read(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("\nAll:\nSpeak, speak.\n\nAll:\nWe know it, we know it well.\n\n\nSpeak, speak.\n")
    checked = check_dataset(dataset_settings({"path": str(path), "unit": unit}))
    text = checked.report.sets[0].text
    assert text is not None
    assert (text.lines, text.documents, text.longest_line) == (5, 3, 28)
    assert text.longest_at == f"{path}:6"
    assert text.repeated == pytest.approx(2 / 5)
    assert checked.report.task == "language"
    assert not {"empty_source", "copies", "several_targets"} & {kind for _, kind in found(checked.report)}


def test_texts_that_stand_in_two_sets() -> None:
    train = [("", f"This is line {i} of the text.") for i in range(40)]
    told = report("language", [*train, train[3]], [("", "Something new."), train[7]])
    assert found(told) == {
        ("train", "duplicate_texts"): (1, ("train.tsv:41 (first at train.tsv:4)",)),
        ("test", "leaked_texts"): (1, ("test.tsv:2 = train.tsv:8",)),
    }
    assert "train: 41 texts" in told.lines()
    assert "2.4 % of the lines stand there before" in "\n".join(told.lines())


@pytest.mark.parametrize("task", ["label", "tags", "language"])
def test_nothing_is_an_error_whatever_it_is_for(task: Task) -> None:
    told = report(task, [])
    assert found(told) == {("train", "no_pairs"): (1, ())}
    assert told.lines()


# --- the command line --------------------------------------------------------------------------------------------


def test_the_command_guesses_and_can_be_told(seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in [*labelled(), ("x", "godo")]))
    answer = seqloom("check", path)
    assert "taken for labels" in answer.out.splitlines()[0]
    assert f"{path}:61 (godo)" in answer.out
    told = json.loads(seqloom("check", path, "--json").out)
    assert (told["task"], told["guess"]["task"]) == ("label", "label")
    assert told["labels"]["train"] == {"good": 30, "bad": 30, "godo": 1}
    assert {finding["kind"] for finding in told["findings"]} <= set(WHY)
    assert json.loads(seqloom("check", path, "--task", "transduce", "--json").out)["task"] == "transduce"
    assert "label_once" in seqloom("check", path, "--fail").refused("E_DATA", 3)
    assert "did you mean" in seqloom("check", path, "--task", "labelz").refused("E_USAGE", 2)


def test_a_recipe_says_by_its_model_what_the_data_are_for(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in labelled(4)))
    (tmp_path / "dev.tsv").write_text("who\tugly\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"data: {{train: {tmp_path / 'train.tsv'}, dev: {tmp_path / 'dev.tsv'}}}\n"
        "target: {tokenizer: whole}\nmodel: {decoder: {kind: label}}\ntraining: {steps: 1}\n"
    )
    answer = seqloom("check", recipe)
    assert "taken for" not in answer.out
    assert f"{tmp_path / 'dev.tsv'}:1 (ugly)" in answer.out
    assert "its model" in seqloom("check", recipe, "--task", "label").refused("E_USAGE", 2)


def test_files_that_sources_name_and_nobody_can_read(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "0.npy").write_bytes(b"")
    np.save(tmp_path / "1.npy", np.ones((3, 2)))
    (tmp_path / "x.tsv").write_text("".join(f"{number}.npy\t{'ab'[number % 2]}\n" for number in range(20)))
    answer = seqloom("check", tmp_path / "x.tsv")
    assert "no_file (19 times)" in answer.out
    assert f"{tmp_path / 'x.tsv'}:1: not a NumPy array (.npy): {tmp_path / '0.npy'}" in answer.out
    assert f"{tmp_path / 'x.tsv'}:3: " in answer.out
    assert "1 kind(s) of trouble" in seqloom("check", tmp_path / "x.tsv", "--fail").refused("E_DATA", 3)


def _cut(path: Path) -> None:
    """The head of a file stays whole, its contents do not."""
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("write", "name", "what"),
    [
        (write_blocks, "blocks/7.png", "pictures"),
        (write_tones, "tones/7.wav", "sounds"),
        (write_waves, "waves/7.npy", "arrays (.npy)"),
    ],
)
def test_pictures_sounds_and_arrays_are_opened(
    write: Callable[[Path, int], Path], name: str, what: str, seqloom: Command, tmp_path: Path
) -> None:
    data = write(tmp_path, 12)
    whole = seqloom("check", data)
    assert f"train: 12 {what} opened" in whole.out.splitlines()
    assert "no_file" not in whole.out
    _cut(tmp_path / name)
    if what == "sounds":  # of which a shorter one is still one: it must be no sound at all
        (tmp_path / name).write_bytes(b"RIFF" + bytes(100))
    told = seqloom("check", data)
    assert "no_file (1 times): sources name files that cannot be read" in told.out
    assert f"{data}:8: " in told.out
    assert str(tmp_path / name) in told.out
    assert json.loads(seqloom("check", data, "--json").out)["files"] == {"train": {"opened": 12, "decoded": 11}}


def test_of_very_many_files_a_sample_is_decoded_and_all_heads_are_read(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "ALL", 4)
    monkeypatch.setattr(named, "EVERY", 5)
    data = write_blocks(tmp_path, 12)
    (tmp_path / "blocks/8.png").write_text("no picture")  # the ninth, which is not decoded
    told = seqloom("check", data)
    assert "train: 12 pictures opened, 6 of them to their end" in told.out.splitlines()
    assert f"{data}:9: not a picture" in told.out


def test_a_recipe_says_how_long_a_sound_may_be(seqloom: Command, tmp_path: Path) -> None:
    data = write_tones(tmp_path, 12)
    (tmp_path / "r.yaml").write_text(
        f"data: {{train: {data}}}\nsource: {{kind: sound, max_seconds: 0.2}}\ntraining: {{steps: 1}}\n"
    )
    told = seqloom("check", tmp_path / "r.yaml")
    assert "seconds, at most 0.2 are read" in told.out
    assert "no_file" not in seqloom("check", tmp_path / "r.yaml", "--set", "source.max_seconds=5").out


def test_without_pillow_pictures_are_looked_for_and_it_is_said(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_blocks(tmp_path, 3)
    (tmp_path / "blocks/2.png").unlink()
    missing = SeqloomError("E_EXTRA", "pictures need Pillow, which is not installed", fix=images.INSTALL)
    monkeypatch.setattr(images, "require", lambda: (_ for _ in ()).throw(missing))
    monkeypatch.setattr("seqloom.data.pixels.require", images.require)
    told = seqloom("check", data)
    assert "train: 3 pictures are there, and none was opened: pictures need Pillow" in told.out
    assert "no_file (1 times)" in told.out
