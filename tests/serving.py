"""A real server for tests: uvicorn on a free port, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from seqloom.serve.app import guarded
from seqloom.serve.batcher import Pace
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits
from seqloom.serve.runs import Opening, Runs
from seqloom.serve.server import Server
from seqloom.serve.service import Service
from seqloom.web.listening import Address


@contextmanager
def serving(
    *runs: Path,
    limits: Limits | None = None,
    pace: Pace | None = None,
    keys: Keys | None = None,
    deterministic: bool = False,
) -> Iterator[tuple[httpx.Client, Service]]:
    """A client of a server for these runs, and the service behind it."""
    served = Runs(runs, Opening("cpu", 1))
    service = Service.of(served, limits, pace, keys=keys, deterministic=deterministic)
    listener = Address(port=0).bound()
    server = Server(guarded(service), drain=0.0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield client, service
    finally:
        server.should_exit = True
        thread.join(10)
        service.batcher.stop()
