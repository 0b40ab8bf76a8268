"""`predict` and `evaluate` under torchrun: what several processes write is what one writes, and how they fail."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

import several
from commands import LETTERS, Answer, binary, trained

LINES = 1500
BUFFER = "--buffer=500"  # so that there are several, and several batches in each
WRITTEN = {
    "text": ("--beam", 4),
    "jsonl": ("--json", "--n-best", 2, "--beam", 3),  # scores to the last digit
    "drawn": ("--sample", "--seed", 3, "--json"),
}


def lines_of(folder: Path, count: int = LINES) -> Path:
    """Lines of many lengths, some of them blank."""
    path = folder / "lines.txt"
    texts = ["".join(LETTERS[(i * k + k) % 8] for k in range(1 + i % 17)) if i % 40 else "" for i in range(count)]
    path.write_text("\n".join(texts) + "\n")
    return path


def predict(size: int, *arguments: object) -> several.Ranks:
    return several.start([[*several.SEQLOOM, "predict", *arguments]] * size)


def alone(*arguments: object) -> Answer:
    found = binary(*arguments)
    assert found.code == 0, found
    return found


# --- what is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("form", WRITTEN)
def test_several_processes_write_what_one_writes(form: str, size: int, tmp_path: Path) -> None:
    lines, one, out = lines_of(tmp_path), tmp_path / "one.txt", tmp_path / "out.txt"
    asked = (trained(), lines, BUFFER, *WRITTEN[form])
    alone("predict", *asked, "-o", one)
    with predict(size, *asked, "-o", out) as ranks:
        assert ranks.codes() == [0] * size, ranks.everything()
        assert f"{LINES:,} lines in " in ranks.said(0)
        assert [ranks.said(rank) for rank in range(1, size)] == [""] * (size - 1), "one talks"
    assert out.read_bytes() == one.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "one.txt", "out.txt"]


def test_fewer_batches_than_processes_and_stdout(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, 3)
    expected = alone("predict", trained(), lines, "-q").out
    with predict(3, trained(), lines, "-q") as ranks:
        assert ranks.codes() == [0, 0, 0], ranks.everything()
        assert [ranks.said(rank) for rank in range(3)] == [expected, "", ""]


def test_by_torchrun_itself(tmp_path: Path) -> None:
    """Which holds the meeting place, and has options of its own."""
    lines, one, out = lines_of(tmp_path), tmp_path / "one.txt", tmp_path / "out.txt"
    alone("predict", trained(), lines, "-o", one)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "seqloom"]
    command = [several.SEQLOOM[0], *torchrun, "predict", trained(), lines, "-o", out]
    with several.start([command]) as launcher:
        assert launcher.codes() == [0], launcher.everything()
    assert out.read_bytes() == one.read_bytes()


def test_a_test_set_is_judged_once_on_shared_predictions(tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    words = [word for word in lines_of(tmp_path, 900).read_text().splitlines() if word]
    test.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    asked = ["evaluate", trained(), "--data", test, "--json", "--no-report", "--search", "greedy,beam=3"]
    expected = json.loads(alone(*asked, "--write-outputs", tmp_path / "one.txt").out)
    command = [*several.SEQLOOM, *asked, "--write-outputs", tmp_path / "out.txt"]
    with several.start([command] * 2) as ranks:
        assert ranks.codes() == [0, 0], ranks.everything()
        found = json.loads(ranks.said(0))
        assert ranks.said(1) == ""
    assert (tmp_path / "out.txt").read_bytes() == (tmp_path / "one.txt").read_bytes()
    for report in (found, expected, *found["others"], *expected["others"]):
        for clock in ("seconds", "sentences_per_second", "tokens_per_second"):
            report["decoding"].pop(clock)
    assert found == expected


def test_a_gate_that_is_missed_is_told_once(tmp_path: Path) -> None:
    command = [*several.SEQLOOM, "evaluate", trained(), "--no-report", "--fail-under", "exact=101"]
    with several.start([command] * 2) as ranks:
        assert ranks.codes() == [7, 0], ranks.everything()
        assert "error[E_QUALITY]" in ranks.said(0)
        assert ranks.said(1) == ""


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "need a file that each of them can read; <stdin>; save what comes through a pipe in a file"),
        (("LINES", "--workers", 2), "--workers: that is for one; leave it out"),
        (("--text", "abc"), "--text: that is for one"),
        (("LINES", "--shards", 2, "--shard", 0, "-o", "OUT"), "--shards: that is for one"),
        (("LINES", "--engine", "onnx"), "--engine: that is for one"),
        (("LINES", "--device", "cuda:0"), "one device for all of them: cuda:0; --device; cuda alone"),
    ],
)
def test_what_is_for_one_process_is_refused_once(arguments: tuple[object, ...], said: str, tmp_path: Path) -> None:
    places: dict[object, Path] = {"LINES": lines_of(tmp_path, 10), "OUT": tmp_path / "out.txt"}
    with predict(2, trained(), *(places.get(one, one) for one in arguments)) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert ranks.said(0).startswith("seqloom: error[E_USAGE]: several processes"), ranks.said(0)
        assert said in ranks.said(0)
        assert ranks.said(1) == ""


@pytest.mark.parametrize("option", [("--diagnose",), ("--search-errors", 3), ("--against", "RUN"), ("--data", "-")])
def test_what_one_process_judges_is_refused_once(option: tuple[object, ...]) -> None:
    asked = [trained() if one == "RUN" else one for one in option]
    with several.start([[*several.SEQLOOM, "evaluate", trained(), *asked]] * 2) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert "error[E_USAGE]: several processes, and " in ranks.said(0)
        assert ranks.said(1) == ""


def test_different_options_end_at_the_start(tmp_path: Path) -> None:
    command = [*several.SEQLOOM, "predict", trained(), lines_of(tmp_path), "-o", tmp_path / "out.txt"]
    with several.start([command, [*command, "--beam", 2]]) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert "error[E_RANKS]: ranks 0 and 1 were given different options" in ranks.said(0)
        assert ranks.said(1) == ""


@pytest.mark.parametrize("what", ["lines", "model"])
def test_different_lines_or_models_under_one_name_are_found(what: str, tmp_path: Path) -> None:
    """The same command on two machines: here, in two folders."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        lines_of(folder)
        shutil.copytree(trained(), folder / "run")
    if what == "lines":
        changed = (folders[1] / "lines.txt").read_text().replace("abc", "acb")
        (folders[1] / "lines.txt").write_text(changed)
    else:
        card = folders[1] / "run" / "bundle" / "card.json"
        card.write_text(card.read_text() + "\n")
    command = [*several.SEQLOOM, "predict", "run", "lines.txt", "-o", tmp_path / "out.txt"]
    with several.start([command] * 2, folders) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        found = "read different texts" if what == "lines" else "have different models"
        assert f"error[E_RANKS]: ranks 0 and 1 {found}" in ranks.said(0)
        assert ranks.said(1) == ""
    assert not (tmp_path / "out.txt").exists()


# --- a rank that fails -------------------------------------------------------------------------------------------


def test_a_line_that_cannot_be_answered_is_told_once(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, 50)
    lines.write_text(lines.read_text() + "abcdefgh" * 10 + "\n")
    with predict(2, trained(), lines, "-o", tmp_path / "out.txt") as ranks:
        assert ranks.codes() == [3, 3], ranks.everything()
        assert ranks.said(0).startswith("seqloom: error[E_LONG]: ")
        assert f"{lines}:51" in ranks.said(0)
        assert ranks.said(1) == ""
    assert not (tmp_path / "out.txt").exists()


def test_what_one_rank_cannot_open_ends_all_with_its_code(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        lines_of(folder)
        shutil.copytree(trained(), folder / "run")
    weights = folders[1] / "run" / "bundle" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    command = [*several.SEQLOOM, "predict", "run", "lines.txt", "-o", tmp_path / "out.txt"]
    with several.start([command] * 2, folders) as ranks:
        assert ranks.codes() == [4, 4], ranks.everything()
        said = [line for line in ranks.everything().splitlines() if "error[" in line]
        assert len(said) == 1, said
        assert "error[E_BUNDLE]: rank 1 " in said[0]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_killed_ends_the_others(lost: int, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with predict(3, trained(), lines_of(tmp_path, 60_000), BUFFER, "--beam", 16, "-o", out, "-q") as ranks:
        ranks.wait_until(lambda: any(tmp_path.glob(".out.txt.*.tmp")))  # rank 0 has begun to write
        time.sleep(1)
        ranks.kill(lost)
        assert ranks.codes(but=[lost]) == [6, 6], ranks.everything()
        said = [line for line in ranks.everything().splitlines() if "error[" in line]
        assert len(said) == 1, said
        assert f"error[E_WORKER]: rank {lost} " in said[0]
        assert "give the same command again" in said[0]
    assert not out.exists()


def test_a_rank_that_stands_still_is_named(tmp_path: Path) -> None:
    out, limit = tmp_path / "out.txt", ("--set", "runtime.timeout=8")
    with predict(2, trained(), lines_of(tmp_path, 60_000), BUFFER, "--beam", 16, "-o", out, *limit) as ranks:
        ranks.wait_until(lambda: any(tmp_path.glob(".out.txt.*.tmp")))
        time.sleep(2)
        ranks.signal(1, signal.SIGSTOP)
        assert ranks.codes(but=[1]) == [6], ranks.everything()
        assert "error[E_WORKER]: rank 1 " in ranks.said(0)
        assert "gave no sign of life for 8 s" in ranks.said(0)
    assert not out.exists()
