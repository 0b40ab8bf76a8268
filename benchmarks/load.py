"""How a server bears load: an open loop of requests, Poisson arrivals, latency from the planned send time.

    python benchmarks/load.py RUN SOURCES [--seconds 20] [--soak 600] [--write]

SOURCES is a file of lines to ask for. The server gets one core and this driver another; the offline figure (`predict`
in batches) is taken on the server's core, before the server starts. Then: the peak (the best of a ladder of rates),
70 % of it, three times it, and, where asked, a soak at half of it with the server's memory before and after. A late
answer counts from when it should have been asked for, so that a server that stalls cannot hide it. With --write the
result goes to results/load.json; on a machine that does anything else it says little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.load import find_bundle
from seqloom.bundle import open_bundle

RESULT = Path(__file__).parent / "results" / "load.json"
SEQLOOM = str(Path(sys.executable).with_name("seqloom"))
SERVER_CORE, DRIVER_CORE = 0, 1
SEED = 1  # of the arrivals
LADDER = (0.4, 0.6, 0.8, 0.9, 1.0, 1.2)  # of the offline figure
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
OFFLINE = """
import sys, time
from seqloom import load
model = load(sys.argv[1], device="cpu", threads=1)
lines = open(sys.argv[2], encoding="utf-8").read().splitlines()[:int(sys.argv[3])]
list(model.predict(lines[:64]))
started_at = time.perf_counter()
count = sum(1 for _ in model.predict(lines))
print(count / (time.perf_counter() - started_at))
"""


@dataclass
class Outcome:
    """What happened at one rate."""

    rate: float
    seconds: float
    answered: list[float] = field(default_factory=list)  # latencies
    refused: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # what they were

    @property
    def goodput(self) -> float:
        return len(self.answered) / self.seconds

    def report(self) -> dict[str, float | int]:
        return {
            "rate": round(self.rate, 1),
            "goodput": round(self.goodput, 1),
            "answered": len(self.answered),
            "refused": len(self.refused),
            "failed": len(self.failures),
            "p50_ms": round(1000 * percentile(self.answered, 0.5), 1),
            "p99_ms": round(1000 * percentile(self.answered, 0.99), 1),
            "refused_p99_ms": round(1000 * percentile(self.refused, 0.99), 1),
        }


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class Connections:
    """HTTP/1.1 connections that are kept; as little work as possible per request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def status(self, body: bytes) -> int:
        while True:  # a kept connection may have been closed, a fresh one has not
            kept = bool(self.free)
            reader, writer = self.free.pop() if kept else await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(HEAD % len(body) + body)
                status, headers = await self._answer(reader)
            except (OSError, asyncio.IncompleteReadError):
                writer.close()
                if kept:
                    continue
                raise
            if headers.get("connection") == "close":
                writer.close()
            else:
                self.free.append((reader, writer))
            return status

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        await reader.readexactly(int(headers["content-length"]))
        return int(first.split()[1]), headers


async def drive(port: int, lines: Sequence[str], rate: float, seconds: float, seed: int = SEED) -> Outcome:
    """Ask at Poisson times, whatever the answers do."""
    outcome, connections, rng = Outcome(rate, seconds), Connections(port), random.Random(seed)
    bodies = [json.dumps({"inputs": line, "wanted": []}).encode() for line in lines]
    began_at = time.perf_counter()

    async def ask(planned: float, body: bytes) -> None:
        try:
            status = await connections.status(body)
        except (OSError, asyncio.IncompleteReadError) as error:
            outcome.failures.append(repr(error))
            return
        elapsed = time.perf_counter() - planned
        if status == 200:
            outcome.answered.append(elapsed)
        elif status in (429, 503):
            outcome.refused.append(elapsed)
        else:
            outcome.failures.append(f"status {status}")

    tasks, planned = [], began_at
    while (planned := planned + rng.expovariate(rate)) < began_at + seconds:
        if (left := planned - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(ask(planned, rng.choice(bodies))))
    await asyncio.gather(*tasks)
    outcome.seconds = time.perf_counter() - began_at  # answers that came behind the last question count as late
    return outcome


def on_core(core: int) -> None:
    os.sched_setaffinity(0, {core})


def started(run: str) -> tuple[subprocess.Popen[str], int]:
    command = [SEQLOOM, "serve", run, "--port", "0", "--rate", "none", "--quiet", "--device", "cpu", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: on_core(SERVER_CORE))
    assert process.stderr is not None
    process.stderr.readline()
    port = int(process.stderr.readline().split()[0].rpartition(":")[2])
    time.sleep(1)
    return process, port


def resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def offline(run: str, sources: str, count: int) -> float:
    command = [sys.executable, "-c", OFFLINE, run, sources, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=lambda: on_core(SERVER_CORE))
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("sources")
    parser.add_argument("--seconds", type=float, default=20, help="of every rate")
    parser.add_argument("--soak", type=float, default=0, help="seconds of the soak")
    parser.add_argument("--lines", type=int, default=2000, help="lines that are used")
    parser.add_argument("--write", action="store_true", help="write results/load.json")
    asked = parser.parse_args()
    lines = Path(asked.sources).read_text(encoding="utf-8").splitlines()[: asked.lines]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends with us
    on_core(DRIVER_CORE)
    alone = offline(asked.run, asked.sources, asked.lines)
    print(f"offline: {alone:.1f} lines/s", flush=True)
    process, port = started(asked.run)

    def at(rate: float, seconds: float = asked.seconds) -> Outcome:
        outcome = asyncio.run(drive(port, lines, rate, seconds))
        print(json.dumps(outcome.report()), *outcome.failures[:5], flush=True)
        return outcome

    try:
        at(max(1.0, 0.2 * alone), 3)  # warm
        ladder = [at(share * alone) for share in LADDER]
        peak = max(outcome.goodput for outcome in ladder)
        calm, flood = at(0.7 * peak), at(3 * peak)
        result: dict[str, object] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": runtime.describe(),
            "run": open_bundle(find_bundle(asked.run)).about,
            "asked": {"seconds": asked.seconds, "lines": asked.lines, "soak": asked.soak, "seed": SEED},
            "load_average": os.getloadavg()[0],
            "offline": round(alone, 1),
            "peak": round(peak, 1),
            "peak / offline": round(peak / alone, 3),
            "ladder": [outcome.report() for outcome in ladder],
            "70 % of peak": calm.report(),
            "3 x peak": flood.report(),
            "goodput at 3 x / peak": round(flood.goodput / peak, 3),
        }
        if asked.soak:
            before = resident_mb(process.pid)
            soaked = at(0.5 * peak, asked.soak)
            after = round(resident_mb(process.pid), 1)
            result["soak"] = {**soaked.report(), "mb_before": round(before, 1), "mb_after": after}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    if asked.write:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("offline", "peak / offline", "goodput at 3 x / peak")}, indent=1))


if __name__ == "__main__":
    main()
