"""How processes meet: at a key-value store that may still hold what earlier ones left there.

A launcher that starts all processes anew keeps the store, and may not say that it did so. Therefore every process
brings a word of its own, and rank 0 answers it with the name of a place that is new: what lies elsewhere is of others.
"""

from __future__ import annotations

import secrets
import time

from torch.distributed import Store  # type: ignore[attr-defined]

from seqloom.errors import SeqloomError

LOOK = 0.05  # seconds between two looks at the store


def meet(store: Store, rank: int, size: int, patience: float) -> str:
    """The name of this group's place, the same for all; E_WORKER names those who did not come in so many seconds."""
    until = time.monotonic() + patience
    return _welcome(store, size, until) if rank == 0 else _arrive(store, rank, until)


def _arrive(store: Store, rank: int, until: float) -> str:
    word = secrets.token_hex(8)
    store.set(f"hello/{rank}", word)
    while time.monotonic() < until:
        answer = _read(store, f"welcome/{rank}").split()
        if len(answer) == 2 and answer[0] == word:
            store.set(f"here/{answer[1]}/{rank}", "")
            return answer[1]
        time.sleep(LOOK)
    raise _absent([0], "did not answer")


def _welcome(store: Store, size: int, until: float) -> str:
    """Answer every word, also where a new one takes the place of an old one, until all have come."""
    place, missing = secrets.token_hex(8), list(range(1, size))
    answered: dict[int, str] = {}
    while missing := [rank for rank in missing if not store.check([f"here/{place}/{rank}"])]:
        if time.monotonic() > until:
            raise _absent(missing, "did not come")
        for rank in missing:
            word = _read(store, f"hello/{rank}")
            if word and answered.get(rank) != word:
                answered[rank] = word
                store.set(f"welcome/{rank}", f"{word} {place}")
        time.sleep(LOOK)
    return place


def _read(store: Store, key: str) -> str:
    return store.get(key).decode("ascii", errors="replace") if store.check([key]) else ""


def _absent(ranks: list[int], what: str) -> SeqloomError:
    named = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}"
    fix = "look at what they say, and start all again"
    return SeqloomError("E_WORKER", f"{named} {what}", where="ranks", fix=fix)
