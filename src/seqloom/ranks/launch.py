"""How this process was started: alone, or as one of several by torchrun or another launcher.

The names in the environment are torch's own: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK. Nothing here
imports torch, so that a command can ask before it does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from seqloom.errors import SeqloomError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """One of `size` processes. Rank 0 leads: it prepares, writes and talks."""

    rank: int
    size: int
    local: int  # its number on this machine, which is that of its GPU
    local_size: int
    address: str  # where the processes meet
    port: int
    hosted: bool = False  # the launcher holds the meeting place, else rank 0 does

    @property
    def leads(self) -> bool:
        return self.rank == 0


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """The launch of this process; None where it is alone."""
    if any(not environment.get(name) for name in _NEEDED):
        return None
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if size <= 1:
        return None
    if rank >= size:
        raise SeqloomError("E_USAGE", f"RANK {rank} of WORLD_SIZE {size}: ranks are counted from 0", where="launch")
    return Launch(
        rank,
        size,
        _number(environment, "LOCAL_RANK", rank),
        _number(environment, "LOCAL_WORLD_SIZE", size),
        environment["MASTER_ADDR"],
        _number(environment, "MASTER_PORT"),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _number(environment: Mapping[str, str], name: str, missing: int | None = None) -> int:
    text = environment.get(name, "" if missing is None else str(missing))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        fix = "start with torchrun, or set it to a number"
        raise SeqloomError("E_USAGE", f"{name} is {text!r}, not a number", where="launch", fix=fix)
    return int(text)
