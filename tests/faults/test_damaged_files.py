"""What lies in a run or a bundle and is no longer what seqloom wrote: every command says which file, and never fails
in an unexpected way."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from commands import Answer, Command, trained
from seqloom.bundle import open_bundle
from seqloom.errors import SeqloomError
from seqloom.files import read_json, sha256_file

pytest_plugins = ["command_fixtures"]

STEP = "checkpoints/step-00000012"
FILES = [
    "recipe.yaml",
    "data.json",
    "pairs.json",
    "start.json",
    "finished.json",
    "metrics.jsonl",
    "bundle/card.json",
    "bundle/recipe.yaml",
    "cache/train/corpus.json",
    "cache/dev/corpus.json",
    "checkpoints/last",
    "checkpoints/best",
    f"{STEP}/checkpoint.json",
    "checkpoints/step-00000006/checkpoint.json",
    "codec/source/vocabulary.txt",
]
UNREAD = ("pairs.json", "metrics.jsonl", "checkpoints/step-00000006/checkpoint.json")  # or passed over where damaged
CONTENTS = {
    "open": b"{",
    "list": b"[]",
    "text": b'"x"',
    "empty": b"",
    "deep": b"[" * 500_000,
}
NAMED = {0: "", 2: "E_", 3: "E_", 4: "E_", 6: "E_"}  # the exit codes that a damaged file may lead to


def in_order(answer: Answer, what: object) -> None:
    """A documented exit code, and a name where it is not 0."""
    assert answer.code in NAMED, (what, answer)
    assert "Traceback" not in answer.err, (what, answer)
    assert "E_INTERNAL" not in answer.err, (what, answer)
    if answer.code:
        assert f"error[{NAMED[answer.code]}" in answer.err.strip().splitlines()[-1], (what, answer)


def commands(run: Path) -> dict[str, list[object]]:
    return {
        "info": ["info", run],
        "info --json": ["info", run, "--json"],
        "predict": ["predict", run, "-t", "abc", "-q"],
        "evaluate": ["evaluate", run, "--samples", 1],
        "train": ["train", run, "--quiet"],
    }


def test_the_list_of_files_is_whole() -> None:
    """Each JSON and YAML file of a run stands above, so that a new one is damaged the moment it is written."""
    kinds = (".json", ".yaml", ".jsonl", ".txt")
    there = {path.relative_to(trained()).as_posix() for path in trained().rglob("*") if path.suffix in kinds}
    twins = {"bundle/source/vocabulary.txt", "bundle/target/vocabulary.txt", "codec/target/vocabulary.txt"}
    assert there - set(FILES) - twins == set()


@pytest.mark.parametrize("file", FILES)
def test_a_file_with_other_contents(file: str, seqloom: Command, tmp_path: Path) -> None:
    """Every command, on finished and unfinished runs: a documented exit code, and where it is refused, by name."""
    run = tmp_path / "run"
    refused = 0
    for content in CONTENTS.values():
        for finished, names in ((True, ("info", "predict", "evaluate", "train")), (False, ("train",))):
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(trained(), run)
            if not finished:
                (run / "finished.json").unlink()
            (run / file).write_bytes(content)
            for name in names:
                answer = seqloom(*commands(run)[name])
                in_order(answer, (file, content[:9], name))
                if answer.code:
                    refused += 1
                    said = answer.err.strip().splitlines()[-1]
                    assert file.rpartition("/")[2] in said or file.startswith("codec"), said
    assert bool(refused) != (file in UNREAD)


def leaves(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all that a JSON document holds."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*above, key)
        yield from leaves(part, (*above, key))


def changed(document: dict[str, object], place: tuple[str | int, ...], value: object) -> str:
    new = copy.deepcopy(document)
    inner: object = new
    for key in place[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[place[-1]] = value  # type: ignore[index]
    return json.dumps(new)


@pytest.mark.parametrize("value", ["x", None, [], -1, 10**30, 1e308, "\ud800"], ids=repr)
def test_a_card_with_a_wrong_value_anywhere(value: object, seqloom: Command, run: Path) -> None:
    """Everything a card says has a type that its readers rely on."""
    path = run / "bundle" / "card.json"
    card = json.loads(path.read_text())
    for place in leaves(card):
        path.write_text(changed(card, place, value))
        for command in ("info", "info --json"):
            in_order(seqloom(*commands(run)[command]), place)
    path.write_text(changed(card, ("about", "calibration"), value))
    answer = seqloom(*commands(run)["predict"])
    in_order(answer, "calibration")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("about", "calibration"), "x", "about.calibration: expected a mapping of keys (got 'x')"),
        (("about", "calibration", "temperature"), -1, "about.calibration: temperature: expected more than 0 (got -1)"),
        (("about", "validation", "nll"), "x", "about.validation.nll: expected a number (got 'x')"),
        (("about", "sentences_per_line"), [], "about.sentences_per_line: expected a number (got [])"),
        (("about",), None, "about: expected a mapping of keys (got null)"),
        (("files", "recipe.yaml", "size"), "x", "files.recipe.yaml.size: expected an integer (got 'x')"),
        (("format",), "new", "format: expected an integer (got 'new')"),
        (("more",), 1, "more: unknown key"),
    ],
)
def test_what_is_said_of_a_card(place: tuple[str, ...], value: object, said: str, seqloom: Command, run: Path) -> None:
    path = run / "bundle" / "card.json"
    path.write_text(changed(json.loads(path.read_text()), place, value))
    line = seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)
    assert said in line
    assert str(path) in line
    assert "copy the bundle again, or train again" in line


@pytest.mark.parametrize("file", ["cache/train/corpus.json", f"{STEP}/checkpoint.json", "data.json"])
@pytest.mark.parametrize("value", ["x", None, 10**30], ids=repr)
def test_a_record_with_a_wrong_value_anywhere(file: str, value: object, seqloom: Command, run: Path) -> None:
    document = json.loads((run / file).read_text())
    (run / "finished.json").unlink()
    places = [
        place for place in leaves(document) if place[:2] != ("numbers", "counters") or place[-1] in ("step", "best")
    ]
    for place in places:
        (run / file).write_text(changed(document, place, value))
        answer = seqloom(*commands(run)["train"])
        in_order(answer, place)
        if not answer.code:  # it is finished now: begin again
            shutil.rmtree(run)
            shutil.copytree(trained(), run)
            (run / "finished.json").unlink()


def test_metrics_of_wrong_types_are_passed_over(seqloom: Command, run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    wrong = [changed(json.loads(line), place, "x") for line in lines for place in leaves(json.loads(line))]
    path.write_text("\n".join([*wrong, '{"event": "validated"}', "[" * 100_000, *lines]))
    for command in ("info", "info --json"):
        assert seqloom(*commands(run)[command]).code == 0
    assert json.loads(seqloom("info", run, "--json").out)["progress"]["best"]["step"] == 12


# --- bundles -----------------------------------------------------------------------------------------------------


def rewrite(bundle: Path, name: str, data: bytes) -> None:
    """Put other contents into a bundle and into its card: only what they mean can still be wrong."""
    (bundle / name).write_bytes(data)
    card = json.loads((bundle / "card.json").read_text())
    card["files"][name] = {"size": len(data), "sha256": sha256_file(bundle / name)}
    (bundle / "card.json").write_text(json.dumps(card))


@pytest.mark.parametrize("content", [*CONTENTS.values(), b"\xff\xfe", b"training: {steps: 1}\n"])
def test_a_recipe_that_the_card_knows_but_no_run_wrote(content: bytes, seqloom: Command, run: Path) -> None:
    rewrite(run / "bundle", "recipe.yaml", content)
    for command in ("predict", "evaluate"):
        line = seqloom(*commands(run)[command]).refused("E_BUNDLE", 4)
        assert str(run / "bundle" / "recipe.yaml") in line


@pytest.mark.parametrize("name", ["source", "source/vocabulary.txt", "weights.safetensors", "other"])
@pytest.mark.parametrize("inside", [True, False])
def test_links_in_a_bundle_are_refused(name: str, inside: bool, seqloom: Command, run: Path, tmp_path: Path) -> None:
    """A link shows what lies elsewhere, which may change, or be secret; whatever it is called and shows."""
    bundle = run / "bundle"
    place = bundle / name
    real = (bundle if inside else tmp_path) / "elsewhere"
    if place.exists():
        place.rename(real)
    else:
        real.mkdir()
    place.symlink_to(real)
    for command in ("predict", "info"):
        line = seqloom(*commands(run)[command]).refused("E_BUNDLE", 4)
        assert "a link" in line
        assert str(place) in line


def test_a_file_that_the_card_does_not_name_is_not_read(run: Path) -> None:
    bundle = run / "bundle"
    (bundle / "README.md").write_text("mine")  # nobody reads it
    (bundle / "source" / ".DS_Store").write_text("mine")
    open_bundle(bundle)
    card = json.loads((bundle / "card.json").read_text())
    del card["files"]["source/vocabulary.txt"]
    (bundle / "card.json").write_text(json.dumps(card))
    with pytest.raises(SeqloomError, match="does not name") as refused:
        open_bundle(bundle)
    assert refused.value.exit_code == 4


@pytest.mark.parametrize(
    ("dtype", "said"),
    [(torch.int64, "int64"), (torch.bool, "bool"), (torch.uint8, "uint8"), (torch.complex64, "complex64")],
)
def test_weights_that_are_no_fractions(dtype: torch.dtype, said: str, seqloom: Command, run: Path) -> None:
    path = run / "bundle" / "weights.safetensors"
    weights = load_file(path)
    first = next(iter(weights))
    save_file(weights | {first: torch.ones(weights[first].shape, dtype=dtype)}, path)
    rewrite(run / "bundle", path.name, path.read_bytes())
    line = seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)
    assert f"wrong kind of numbers: {first} {said}" in line


def test_weights_that_only_float64_can_hold(seqloom: Command, run: Path) -> None:
    path = run / "bundle" / "weights.safetensors"
    weights = load_file(path)
    first = next(iter(weights))
    save_file(weights | {first: torch.full(weights[first].shape, 1e300, dtype=torch.float64)}, path)
    rewrite(run / "bundle", path.name, path.read_bytes())
    assert f"not finite: {first}" in seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_weights_of_another_width_are_read(dtype: torch.dtype, seqloom: Command, run: Path) -> None:
    path = run / "bundle" / "weights.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    rewrite(run / "bundle", path.name, path.read_bytes())
    assert seqloom("predict", run, "-t", "abc").code == 0


@pytest.mark.parametrize(
    "header", [b"{", b'{"a": 3}', b'{"a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}']
)
def test_a_weight_file_with_a_wrong_header(header: bytes, seqloom: Command, run: Path) -> None:
    rewrite(run / "bundle", "weights.safetensors", len(header).to_bytes(8, "little") + header + b"\0" * 3)
    line = seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)
    assert "weights.safetensors" in line


# --- the one reader ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "\0"])
def test_what_is_no_json_of_ours(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SeqloomError, match="not a note") as refused:
        read_json(tmp_path / "x.json", 1000, "a note", "write it again")
    assert (refused.value.exit_code, refused.value.fix) == (4, "write it again")
    assert str(tmp_path / "x.json") in refused.value.where


def test_what_is_json_of_ours(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [1, 2.5, null, "ä\\ud83d\\ude00"]}')
    assert read_json(tmp_path / "x.json", 1000, "a note", "") == {"a": [1, 2.5, None, "ä😀"]}
    with pytest.raises(SeqloomError, match="at most 3"):
        read_json(tmp_path / "x.json", 3, "a note", "")
