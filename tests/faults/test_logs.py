"""Logs have levels, and above debug none holds a word of the user's data: whoever keeps them keeps no texts."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from commands import Answer, binary, command_line, environment

WORD = "zebrafinch"  # stands in every example
WORDS = [f"{a}{b}" for a in "abcdefg" for b in "hijklmn"]
RECIPE = """
data: {{train: {train}, split: {{dev: 0.2, test: 0.1}}, limits: {{max_source: 12, max_target: 12}}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model: {{source_embedding: {{width: 8}}, target_embedding: {{width: 8}}, encoder: {{width: 8}}, decoder: {{width: 8}}}}
batching: {{tokens: 128}}
training: {{steps: 6, validate_every: 3, log_every: 1}}
runtime: {{device: cpu, threads: 1}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained on texts that hold the word, and how that was told."""
    place = tmp_path_factory.mktemp("logs")
    (place / "pairs.tsv").write_text("".join(f"{one} {WORD}\t{WORD} {one}\n" for one in WORDS))
    (place / "tiny.yaml").write_text(RECIPE.format(train=place / "pairs.tsv"))
    (place / "lines.txt").write_text("".join(f"{one} {WORD}\n" for one in WORDS))
    (place / "long.txt").write_text(f"{WORD} " * 40 + "\n" + f"{WORD}\n")
    return place


def told(answer: Answer, code: int = 0) -> str:
    assert answer.code == code, answer
    return answer.out + answer.err


def test_training_and_predicting_tell_no_text(folder: Path) -> None:
    run = folder / "run"
    said = told(binary("train", folder / "tiny.yaml", "--run", run))
    assert "validated at step 6" in said
    assert WORD not in said
    assert WORD not in (run / "metrics.jsonl").read_text()
    assert all(WORD.encode() not in path.read_bytes() for path in (run / "board").rglob("*") if path.is_file())
    shown = told(binary("--debug", "train", folder / "tiny.yaml", "--run", folder / "again", "--no-report"))
    assert f" {WORD} -> " in shown, "at level debug the samples are there"

    lines, out = folder / "lines.txt", folder / "out.txt"
    assert WORD not in told(binary("predict", run, lines, "-o", out))
    assert WORD not in told(binary("predict", run, folder / "long.txt", "-o", out), code=3)
    assert WORD not in told(binary("evaluate", run, "--no-report"))
    shards = ("--shards", 2, "--quarantine", "-o", out)
    for shard in (0, 1):
        assert WORD not in told(binary("predict", run, folder / "long.txt", *shards, "--shard", shard))
    assert WORD not in told(binary("predict", run, folder / "long.txt", *shards, "--join"))
    kept = [*(folder / "out.txt.shards").glob("*.json"), folder / "out.txt.quarantine.jsonl"]
    assert len(kept) == 4
    assert all(WORD not in path.read_text() for path in kept)
    _serves_without_a_word(run)


def _serves_without_a_word(run: Path) -> None:
    with _served(run) as (client, process):
        codes = [
            client.post("/v1/predict", json={"inputs": f"ah {WORD}"}).status_code,
            client.post("/v1/predict", json={"inputs": f"{WORD} " * 40}).status_code,
            client.post("/v1/predict", json={WORD: WORD}).status_code,
            client.post("/v1/predict", content=f'{{"inputs": "{WORD}').status_code,
            client.post("/v1/explain", json={"input": f"ah {WORD}"}).status_code,
            client.post("/translate", params={"q": WORD, "source": "auto", "target": "auto"}).status_code,
            client.get(f"/{WORD}", params={"q": WORD}, headers={"X-Api-Key": WORD}).status_code,
        ]
        assert codes[0] == 200
        assert all(code >= 400 for code in codes[1:4]), codes
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    events = [json.loads(line) for line in said.splitlines()]
    assert sum(event["event"] == "request" for event in events) >= len(codes)
    assert {event["level"] for event in events} == {"info"}
    assert WORD not in said


@contextmanager
def _served(run: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """The real server, on a free port."""
    line = command_line("serve", run, "--port", 0, "--drain", 0.5, "--rate", "none")
    with subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("serving ")
            with httpx.Client(base_url=process.stderr.readline().split()[0], timeout=60) as client:
                yield client, process
        finally:
            process.kill()
