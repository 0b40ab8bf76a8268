"""How fast is seqloom next to its peers, on a CPU? Run: `make bench-peers DATA=FOLDER` (hours), or one question alone:

    python benchmarks/peers.py --data FOLDER --only train-transformer --rounds 5

FOLDER holds `multi30k/` and `cmudict/`. Every contender is a process of its own, in an environment of its own (made on
first use), with its model built; they take turns in short windows, one at a time while the others wait, so that noise
hits all of them. A figure is the median of a contender's windows after a first one that is thrown away. The result of a
question replaces its older one in `results/peers.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peers import data, environments, ours
from peers.questions import NATURAL, QUESTIONS, Contender, Question
from peers.worker import Job

from seqloom import export_run, runtime

HERE = Path(__file__).resolve().parent
HOME = HERE.parent / ".bench"  # environments, data, models and logs; not in the repository
RESULT = HERE / "results" / "peers.json"
PATIENCE = 1800.0  # seconds for one answer, of a worker that may be dead
SINGLE = 16  # sentences one by one, for every batch of others
BRIEF = 20  # steps of training, where all outputs are equally long and weights do not matter


class Failed(Exception):  # noqa: N818
    """A contender that cannot go on, and why."""


@dataclass
class Worker:
    """A contender's process, seen from here."""

    contender: Contender
    process: subprocess.Popen[str]
    log: Path
    versions: dict[str, str] = field(default_factory=dict)
    windows: list[dict[str, Any]] = field(default_factory=list)

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        if not line:
            raise Failed(_last_words(self.log))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def window(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(_last_words(self.log)) from None
        return self.heard()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"


def start(contender: Contender, job: Job, log: Path) -> Worker:
    """Begin a contender, wait until it is ready, and let it warm up."""
    name = contender.script
    try:
        python = environments.python(name, HOME / "envs")
    except subprocess.CalledProcessError as error:
        raise Failed(f"cannot be installed: {error}") from None
    threads = str(job.threads)
    variables = environments.ENVIRONMENTS[name].variables if name in environments.ENVIRONMENTS else {}
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(python), "-m", f"peers.{name}", job.as_json()],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **variables},
        )
    worker = Worker(contender, process, log)
    try:
        worker.versions = worker.heard()["ready"]
        worker.window()
    except Failed:
        process.kill()
        raise
    return worker


def measure(name: str, question: Question, asked: argparse.Namespace) -> dict[str, Any]:
    """All contenders of a question, in turns."""
    place = data.prepared(question.data, asked.data, HOME / "data")
    about = json.loads((place / data.CARD).read_text())
    logs = HOME / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    workers: list[Worker] = []
    with ExitStack() as stack:
        for contender in _chosen(question, asked):
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-"))
            job = _job(question, contender, asked, place, about, scratch)
            try:
                worker = start(contender, job, logs / f"{name}-{contender.script}{contender.variant}.log")
            except Failed as error:
                failed[contender.name] = str(error)
                continue
            stack.callback(worker.process.wait)
            stack.callback(worker.process.kill)
            workers.append(worker)
        for _ in range(asked.rounds):
            for worker in list(workers):
                try:
                    worker.windows.append(worker.window())
                except Failed as error:
                    failed[worker.contender.name] = str(error)
                    workers.remove(worker)
    return _result(question, workers, failed, asked, about)


def _chosen(question: Question, asked: argparse.Namespace) -> list[Contender]:
    return [one for one in question.contenders if not asked.contenders or one.script in asked.contenders]


def _job(
    question: Question,
    contender: Contender,
    asked: argparse.Namespace,
    place: Path,
    about: dict[str, Any],
    scratch: str,
) -> Job:
    job = Job(
        kind=question.kind,
        data=str(place),
        scratch=scratch,
        model=question.model | {"mean_longest": about["mean_longest"]},
        threads=asked.threads,
        steps=asked.steps,
        tokens=question.tokens,
        rows=question.rows,
        variant=contender.variant,
    )
    if question.kind == "train":
        return job
    return replace(
        job,
        steps=asked.batches if question.batch > 1 else SINGLE * asked.batches,
        batch=question.batch,
        beam=question.beam,
        length=None if question.stop == NATURAL else about["length"],
        bundle=str(_bundle(question, job, asked.model_steps)),
    )


def _bundle(question: Question, job: Job, steps: int) -> Path:
    """The run of seqloom that predicts, trained once; a Transformer is exported as well."""
    is_transformer = question.model["kind"] == "transformer"
    steps = steps if is_transformer else min(steps, BRIEF)
    folder = HOME / "models" / f"{question.model['kind']}-{steps}"
    if not (folder / "bundle" / "card.json").exists():
        print(f"training {folder.name} for the questions about prediction", file=sys.stderr)
        ours.trained(job, folder, steps)
    if is_transformer:
        for variant, quantise in {"float32": None, "int8": "int8"}.items():
            if not (folder / f"ctranslate2-{variant}").exists():
                export_run(folder, folder / f"ctranslate2-{variant}", quantise)
    return folder


def _result(
    question: Question, workers: list[Worker], failed: dict[str, str], asked: argparse.Namespace, about: dict[str, Any]
) -> dict[str, Any]:
    found = {worker.contender.name: _figures(worker) for worker in workers}
    rates = {name: one[question.unit] for name, one in found.items()}
    mine = [worker.contender.name for worker in workers if worker.contender.is_ours]
    return {
        "what": question.what,
        "counted": question.counted,
        "unit": question.unit,
        **({"stop": question.stop.format(length=about["length"])} if question.stop else {}),
        **({"batch_tokens": question.tokens} if question.tokens else {}),
        **({"batch_rows": question.rows} if question.rows else {}),
        **({"batch": question.batch, "beam": question.beam} if question.kind == "predict" else {}),
        "model": question.model,
        "data": {"name": question.data, **about},
        "remarks": list(question.remarks),
        "date": datetime.now(UTC).date().isoformat(),
        "git": _git(),
        "machine": {**runtime.describe(), "threads": asked.threads},
        "rounds": asked.rounds,
        "steps_per_window" if question.kind == "train" else "batches_per_window": (
            asked.steps if question.kind == "train" else asked.batches
        ),
        "contenders": found,
        "failed": failed,
        "ratios": {one: {name: rates[one] / rate for name, rate in rates.items() if name not in mine} for one in mine},
    }


def _figures(worker: Worker) -> dict[str, Any]:
    windows = [one["tokens"] / one["seconds"] for one in worker.windows]
    sentences = [one["sentences"] / one["seconds"] for one in worker.windows if "sentences" in one]
    paddings = [one["padding"] for one in worker.windows if "padding" in one]
    return {
        "tokens_per_second": statistics.median(windows),
        "windows": [round(rate, 1) for rate in windows],
        "tokens_per_window": round(statistics.mean(one["tokens"] for one in worker.windows)),
        **({"sentences_per_second": statistics.median(sentences)} if sentences else {}),
        **({"padding": statistics.mean(paddings)} if paddings else {}),
        "versions": worker.versions,
    }


def _git() -> str:
    """The commit, marked where files differ from it."""
    asked = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    return subprocess.run(asked, cwd=HERE, capture_output=True, text=True).stdout.strip()


def show(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}: {result['what']} ({result['counted']})")
    unit = result["unit"]
    for contender, figures in sorted(result["contenders"].items(), key=lambda pair: -pair[1][unit]):
        padding = f"   padding {100 * figures['padding']:4.1f} %" if "padding" in figures else ""
        print(f"  {contender:38} {figures[unit]:9,.0f}{padding}")
    for contender, why in result["failed"].items():
        print(f"  {contender:38} failed: {why}")
    for one, ratios in result["ratios"].items():
        print(f"  {one}: " + ", ".join(f"{ratio:.2f} x {other}" for other, ratio in ratios.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds multi30k/ and cmudict/")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS), help="these questions alone")
    parser.add_argument("--contenders", nargs="+", default=[], help="these scripts of benchmarks/peers/ alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="of a window in training")
    parser.add_argument("--batches", type=int, default=4, help="of a window in prediction")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model-steps", type=int, default=400, help="that the model trains which predicts")
    parser.add_argument("--output", type=Path, default=RESULT)
    asked = parser.parse_args()
    for name in asked.only:
        result = measure(name, QUESTIONS[name], asked)
        show(name, result)
        known = json.loads(asked.output.read_text()) if asked.output.exists() else {}
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text(json.dumps({**known, name: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
