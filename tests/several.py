"""What tests of several processes share: to start them as a launcher would, and to hear how each ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SEQLOOM = (sys.executable, "-m", "seqloom")
LONGEST = 90.0  # seconds: a hang guard


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(rank: int, size: int, port: int, address: str = "127.0.0.1") -> dict[str, str]:
    named = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    own = {"MASTER_ADDR": address, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return {**os.environ, **{name: str(value) for name, value in named.items()}, **own}


@dataclass
class Ranks:
    """Processes of one training. Those that are left at the end of the block are killed."""

    processes: list[subprocess.Popen[str]]
    logs: list[Path] = field(default_factory=list)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def said(self, rank: int) -> str:
        return self.logs[rank].read_text()

    def everything(self) -> str:
        return "\n".join(f"--- rank {rank}\n{self.said(rank)}" for rank in range(len(self.logs)))

    def signal(self, rank: int, number: int) -> None:
        os.kill(self.processes[rank].pid, number)

    def kill(self, rank: int) -> None:
        self.signal(rank, signal.SIGKILL)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + LONGEST
        while not holds():
            assert time.monotonic() < until, self.everything()
            assert any(process.poll() is None for process in self.processes), self.everything()
            time.sleep(0.02)

    def codes(self, but: Sequence[int] = ()) -> list[int]:
        """The exit codes, of all but these ranks."""
        until = time.monotonic() + LONGEST
        found = []
        for rank, process in enumerate(self.processes):
            if rank not in but:
                try:
                    found.append(process.wait(max(0.1, until - time.monotonic())))
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"rank {rank} hangs\n{self.everything()}") from None
        return found


def start(
    commands: Sequence[Sequence[object]],
    folders: Sequence[Path] | None = None,
    prefixes: Mapping[int, Sequence[str]] | None = None,
    address: str = "127.0.0.1",
    extra: Mapping[str, str] | None = None,
) -> Ranks:
    """One process for each command, as ranks of one group; each may have its folder, and words before its command."""
    port, place = free_port(), Path(tempfile.mkdtemp(prefix="seqloom-ranks-"))
    processes, logs = [], []
    for rank, command in enumerate(commands):
        logs.append(place / f"rank-{rank}.txt")
        with logs[-1].open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [*(prefixes or {}).get(rank, ()), *map(str, command)],
                    env={**environment(rank, len(commands), port, address), **(extra or {})},
                    cwd=None if folders is None else folders[rank],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
    return Ranks(processes, logs)


def train(size: int, *arguments: object) -> Ranks:
    """`seqloom train` with so many processes."""
    return start([[*SEQLOOM, "train", *arguments]] * size)
