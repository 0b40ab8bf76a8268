"""Values that no machine can hold or use: refused by name and range, before anything is computed or made."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import get_args

import pytest
import torch
from pydantic import ValidationError
from pydantic_core import PydanticKnownError, core_schema

import seqloom as package
from commands import Command, command_line, environment, write_recipe
from seqloom import config, runtime, wording
from seqloom.config import MOST, Settings, parse_yaml, validated
from seqloom.data.vectors import read_vectors
from seqloom.errors import SeqloomError
from seqloom.models.model import MODELS
from seqloom.models.tables import DECODERS, ENCODERS
from seqloom.runtime import MOST_THREADS
from seqloom.search.independent import Sample

pytest_plugins = ["command_fixtures"]

HUGE = 10**25
PYDANTIC = re.compile(r"Input should|valid (integer|number|string|tuple|list|dict)|constrained|[Tt]uple|parse|instance")


def settings_classes() -> list[type[Settings]]:
    """Every settings class of the package."""
    for module in pkgutil.walk_packages(package.__path__, "seqloom."):
        importlib.import_module(module.name)
    found: list[type[Settings]] = []
    pending = [Settings]
    while pending:
        below = [cls for cls in pending.pop().__subclasses__() if cls.__module__.startswith("seqloom.")]
        found += [cls for cls in below if cls not in found]
        pending += below
    return found


CLASSES = settings_classes()


def numbers(schema: object) -> Iterator[dict[str, object]]:
    """The numbers that a pydantic schema accepts."""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float"):
            yield schema
        for key, part in schema.items():
            if key not in ("metadata", "serialization", "default", "cls"):
                yield from numbers(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from numbers(part)


# --- one mechanism -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls", CLASSES, ids=lambda cls: f"{cls.__module__.removeprefix('seqloom.')}.{cls.__qualname__}"
)
def test_every_number_of_every_settings_class_is_bounded(cls: type[Settings]) -> None:
    for number in numbers(cls.__pydantic_core_schema__):
        highest, lowest = number.get("le", number.get("lt")), number.get("ge", number.get("gt"))
        assert isinstance(highest, (int, float)), number
        assert isinstance(lowest, (int, float)), number
        room = 2**63 if number["type"] == "int" else 3e38  # 64 bits, float32
        assert -room <= lowest < highest <= room
        assert number["type"] == "int" or lowest != 0 or "gt" not in number, "0 is excluded, so what is nearly 0 is too"


def test_a_class_of_somebody_else_is_bounded_too() -> None:
    class Theirs(config.Settings):
        count: int = 1
        some: tuple[int, ...] = ()
        rate: float | None = None

    for raw in ({"count": HUGE}, {"count": -HUGE}, {"count": str(HUGE)}, {"some": [1, HUGE]}, {"rate": 1e300}):
        with pytest.raises(SeqloomError, match=next(iter(raw))) as refused:
            validated(Theirs, raw, "theirs")
        assert f"{MOST:,}" in refused.value.what
    assert validated(Theirs, {"count": MOST, "rate": -MOST}, "theirs").count == MOST


@pytest.mark.parametrize(
    "assignment",
    [
        f"training.accumulate={HUGE}",
        f"training.steps={HUGE}",
        f"training.steps='{HUGE}'",
        f"training.steps=0x{'f' * 10_000}",
        f"training.steps={'9' * 5_000}",
        f"data.limits.max_source={HUGE}",
        f"data.split.seed={HUGE}",
        f"runtime.seed={HUGE}",
        f"source.tokenizer={{kind: bpe, size: {HUGE}}}",
        f"model.source_embedding.width={HUGE}",
        f"model.encoder.layers={10**6}",
        f"search.limits.max_length={HUGE}",
        f"search.limits.min_length={HUGE}",
        f"search.strategy={{kind: diverse, size: {MOST}, groups: 7}}",
        "search.limits.max_ratio=1e300",
        "search.strategy={kind: sample, temperature: 1e-39}",
        "search.strategy={kind: sample, temperature: 1e39}",
        "search.strategy={kind: sample, top_p: 1e-38}",
        "task.edit_temperature=1e-300",
        "model.encoder.cell={kind: lstm, forget_bias: 1e308}",
        "training.optimiser.epsilon=1e-300",
        "training.clip=1e-300",
        "runtime.threads=4096",
    ],
)
def test_a_recipe_with_an_absurd_number(assignment: str, seqloom: Command, tmp_path: Path) -> None:
    """Exit 2 with the key, a line that can be read, and nothing made."""
    line = seqloom("train", write_recipe(tmp_path), "-r", tmp_path / "run", "--set", assignment).refused("E_RECIPE", 2)
    assert assignment.partition("=")[0].rpartition(".")[2] in line
    assert len(line) < 500
    assert {path.name for path in (tmp_path / "run").glob("*")} <= {".lock"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-length", HUGE], "max_length: expected at most"),
        (["--min-length", HUGE], "min_length: expected at most"),
        (["--max-length", 10**8], "max_length: expected at most 1,000,000"),
        (["--no-repeat", HUGE], "no_repeat: expected at most"),
        (["--n-best", HUGE], "n_best: expected at most"),
        (["--sample", "--seed", HUGE], "seed: expected less than"),
        (["--sample", "--seed", -HUGE], "seed: expected at least"),
        (["--sample", "--top-k", HUGE], "top_k: expected at most"),
        (["--sample", "--temperature", "1e-39"], "temperature: expected at least 0.001 (got 1e-39)"),
        (["--sample", "--temperature", "1e39"], "temperature: expected at most 1,000 (got 1e+39)"),
        (["--sample", "--top-p", "1e-38"], "top_p: expected at least 1e-06 (got 1e-38)"),
        (["--coverage-penalty", "1e300"], "coverage_penalty: expected at most"),
    ],
)
def test_a_command_with_an_absurd_number(options: list[object], said: str, seqloom: Command, run: Path) -> None:
    assert said in seqloom("predict", run, "-t", "abc", *options).refused("E_USAGE", 2)


@pytest.mark.parametrize("command", ["predict", "evaluate", "score"])
def test_more_threads_than_can_be_started(command: str, seqloom: Command, run: Path) -> None:
    given = {"predict": ["-t", "abc"], "score": [run.parent / "pairs.tsv"]}.get(command, [])
    line = seqloom(command, run, *given, "--threads", MOST_THREADS + 1).refused("E_RECIPE", 2)
    assert "threads" in line
    assert f"at most {MOST_THREADS}" in line


def test_a_run_of_a_larger_machine_is_read_here(seqloom: Command, run: Path) -> None:
    """What its recipe says of threads binds nobody who only predicts; who trains on is told the remedy."""
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("threads: 1\n", f"threads: {MOST_THREADS + 1}\n"))
    (run / "finished.json").unlink()
    assert seqloom("info", run).code == 0
    assert seqloom("predict", run, "-t", "abc").code == 0
    assert "runtime.threads" in seqloom("train", run).refused("E_RECIPE", 2)
    assert seqloom("train", run, "--set", "runtime.threads=1").code == 0


@pytest.mark.parametrize("bounds", [{"temperature": 1e-3}, {"temperature": 1e3}, {"top_p": 1e-6}])
def test_at_the_bounds_of_sampling_something_is_drawn(bounds: dict[str, float]) -> None:
    sample = Sample(Sample.Settings.model_validate(bounds))
    shaped = sample.reshaped(torch.tensor([[-1e4, 0.0, -1.0, -torch.inf]]))
    assert torch.isfinite(shaped).all()
    assert float(shaped.sum()) > 0.5


# --- a model that cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["model.source_embedding.width", "model.encoder.width", "model.decoder.width"])
def test_a_model_that_has_no_room(key: str, seqloom: Command, tmp_path: Path) -> None:
    changes = ["--set", f"{key}=1000000000"]
    line = seqloom("train", write_recipe(tmp_path), "-r", tmp_path / "run", *changes).refused("E_MEMORY", 6)
    assert re.search(r"the weights take ([\d,.]+ GB|more than can be counted), and [\d,.]+ GB of memory are free", line)
    assert "width" in line


@pytest.mark.parametrize("encoder", list(ENCODERS))
@pytest.mark.parametrize("decoder", list(DECODERS))
def test_the_size_of_a_model_is_known_from_its_shapes(
    encoder: str, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, and without a draw: the weights that are made afterwards are those of the seed."""
    if ENCODERS[encoder].shrinks and decoder in ("tags", "span"):
        pytest.skip("tags and spans need every position")
    raw = {"kind": "encoder_decoder", "encoder": encoder, "decoder": decoder}
    raw |= {side: {"width": 8} for side in ("source_embedding", "target_embedding")}
    raw |= {"source_embedding": "regions"} if ENCODERS[encoder].reads == "pixels" else {}

    def build() -> torch.nn.Module:
        return MODELS.build(MODELS.settings(raw), source_vocabulary=20, target_vocabulary=20)

    before = torch.random.get_rng_state()
    size = sum(parameter.nbytes for parameter in build().parameters())
    torch.random.set_rng_state(before)
    monkeypatch.setattr(runtime, "free_memory", lambda: size)
    runtime.check_room(build)
    assert torch.equal(torch.random.get_rng_state(), before)
    monkeypatch.setattr(runtime, "free_memory", lambda: size - 1)
    with pytest.raises(SeqloomError, match="E_MEMORY"):
        runtime.check_room(build)


def test_a_size_that_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "free_memory", lambda: None)
    with pytest.raises(SeqloomError, match="more than can be counted"):
        runtime.check_room(lambda: torch.nn.Linear(2**40, 2**40))


def test_what_is_infinite_is_left_out_of_the_card(seqloom: Command, tmp_path: Path) -> None:
    """A learning rate beyond reason ends in a perplexity that JSON cannot hold: the run still ends well."""
    changes = ("lr=1e9", "training.steps=2", "training.validate_every=2", "precision=float32")
    settings = [part for change in changes for part in ("--set", change)]
    assert seqloom("train", write_recipe(tmp_path), "-r", tmp_path / "run", *settings).code == 0
    validation = json.loads((tmp_path / "run" / "bundle" / "card.json").read_text())["about"]["validation"]
    assert "nll" in validation
    assert "perplexity" not in validation


# --- words -------------------------------------------------------------------------------------------------------

VALUES = (None, True, "x", "", HUGE, -1, 0, 0.5, 1e300, "1e5", [], [1], ["x", ""], [[]], {}, {"x": 1}, {"kind": 3})


def test_no_settings_class_speaks_in_words_of_pydantic() -> None:
    """Every key of every class with values of every type: what is wrong is told plainly, and its key is named."""
    raised: set[str] = set()
    for cls in CLASSES:
        for key in cls.model_fields:
            for value in VALUES:
                try:
                    cls.model_validate({key: value})
                except ValidationError as error:
                    for item in error.errors(include_url=False):
                        said = f"{wording.path(item['loc'])}{wording.problem(item)}"
                        assert item["type"] in wording.OURS, (cls, key, value, item)
                        assert not PYDANTIC.search(said), (cls, key, value, said)
                        assert "  " not in said
                        raised.add(said)
    assert len(raised) > 500, "the walk has met the settings"


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_no_error_type_of_pydantic_is_told_in_its_own_words(kind: str) -> None:
    """Those that settings cannot raise today as well: a new field may."""
    context = {"gt": 1, "ge": 1, "lt": 1, "le": 1, "min_length": 2, "max_length": 2, "pattern": "a+"}
    context |= {"expected": "'up' or 'down'", "actual_length": 3, "field_type": "List", "error": ValueError("ours")}
    item = {"type": kind, "loc": ("key",), "msg": "Input should be a valid thing", "input": "given", "ctx": context}
    if kind == "value_error":
        item["msg"] = "Value error, ours"
    said = wording.problem(item)  # type: ignore[arg-type]
    assert not PYDANTIC.search(said), said
    assert kind in ("missing", "extra_forbidden", "value_error") or said.endswith("(got 'given')")


def test_the_words_are_of_error_types_that_exist() -> None:
    known = get_args(core_schema.ErrorType)
    assert [kind for kind in wording._WORDS if kind not in known] == []
    assert PydanticKnownError("missing").type == "missing"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"training": {"steps": "many"}}, "training.steps: expected an integer (got 'many')"),
        ({"training": {"steps": 1.5}}, "training.steps: expected an integer (got 1.5)"),
        ({"training": {"steps": None, "epochs": []}}, "training.epochs: expected an integer (got [])"),
        ({"training": {"optimiser": {"lr": "fast"}}}, "must be given"),
        ({"model": {"tied": "perhaps"}}, "model.tied: expected true or false (got 'perhaps')"),
        ({"data": {"on_bad_utf8": "skp"}}, "expected error or skip or replace (did you mean \"skip\"?) (got 'skp')"),
        ({"data": {"train": {"source": "a", "target": []}}}, "data.train.target: expected text that is not empty or"),
        ({"data": {"train": {"path": "a", "columns": [0]}}}, "data.train.columns"),
        ({"data": {"train": {"path": ""}}}, "data.train.path: expected text of at least 1 character (got '')"),
        ({"evaluation": {"metrics": []}}, "evaluation.metrics: expected at least 1 entry (got [])"),
        ({"evaluation": {"metrics": "bleu"}}, "evaluation.metrics: expected a list (got 'bleu')"),
        ({"task": 3}, "task: expected a mapping of keys (got 3)"),
        ({"languages": {"source": "no code"}}, "languages.source: expected text that matches"),
        ({"extras": {"not a name": {}}}, "extras.not a name: "),
        ({"runtime": {"seed": HUGE}}, "(got an integer of about 25 digits)"),
        ({"languages": {"source": "x" * 1000}}, "xxx...)"),
    ],
)
def test_what_a_person_reads(raw: dict[str, object], said: str) -> None:
    from seqloom.recipe import Recipe

    with pytest.raises(SeqloomError) as refused:
        validated(Recipe, raw, "recipe.yaml")
    assert said in refused.value.what, refused.value.what


def test_digits_beyond_python_are_refused_in_our_words() -> None:
    with pytest.raises(SeqloomError, match="a number of too many digits"):
        parse_yaml("a: " + "9" * 5000, "recipe.yaml")


# --- data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e39", "1e400", "-1e39", "3e9"])
def test_a_huge_number_among_word_vectors_is_refused_with_its_line(number: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text(f"cat 1 2\ndog 3 {number}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SeqloomError, match=r"v\.txt:2") as refused:
            read_vectors(path, {"cat", "dog"}, 2)
    assert refused.value.code == "E_DATA"


@pytest.mark.parametrize("command", ["train", "check"])
def test_a_gzip_file_that_is_not_whole(command: str, seqloom: Command, tmp_path: Path) -> None:
    """The file, where it breaks and what could be read of it."""
    recipe, path = write_recipe(tmp_path), tmp_path / "pairs.tsv.gz"
    rng = Random(1)
    whole = gzip.compress("".join(f"{rng.random()}\t{rng.random()}\n" for _ in range(3000)).encode(), mtime=0)
    changes = ["--set", f"data.train={path}", *(["-r", tmp_path / "run"] if command == "train" else [])]
    for content, said in (
        (whole[:9000], "it ends too early"),
        (whole[:9000] + b"\xff" * 99 + whole[9099:], "it is corrupt"),
        (whole + b"what is this?", "it goes on with something else, after 3,000 whole lines"),
    ):
        path.write_bytes(content)
        line = seqloom(command, recipe, *changes).refused("E_GZIP", 3)
        assert f"not a whole gzip file: {said}" in line
        found = re.search(r"after ([\d,]+) whole lines; .*, byte ([\d,]+)", line)
        assert found is not None, line
        lines, offset = (int(number.replace(",", "")) for number in found.groups())
        assert lines > 100
        assert 9000 <= offset <= len(whole)
        assert str(path) in line


def test_a_packed_recipe_is_told_apart(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(gzip.compress(b"training: {steps: 1}"))
    assert "a gzip file" in seqloom("config", tmp_path / "r.yaml").refused("E_RECIPE", 2)


# --- streams that are not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("predict run <&-", 6, "cannot read: it is closed; <stdin>"),
        ("predict run <one.txt >&-", 6, "it is closed; <stdout>"),
        ("predict run one.txt -o out.txt <&- >&- 2>&-", 0, ""),
        ("--version >&-", 6, "it is closed; <stdout>"),
        ("--version <&- 2>&-", 0, ""),
        ("--version <&- >&- 2>&-", 6, ""),
    ],
)
def test_closed_streams(command: str, code: int, said: str, run: Path) -> None:
    (run.parent / "one.txt").write_text("abc\n")
    line = f"{command_line()[0]} {command}"
    done = subprocess.run(["bash", "-c", line], cwd=run.parent, env=environment(), capture_output=True, timeout=60)
    told = done.stderr.decode()
    assert done.returncode == code, told
    assert said in told
    assert "Traceback" not in told
    if "-o" in command:
        assert (run.parent / "out.txt").read_text().count("\n") == 1, "the file holds the answer and nothing else"
