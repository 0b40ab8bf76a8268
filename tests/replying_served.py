"""A real server that has a Smart Reply, for tests: uvicorn on a free port, in a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from replying import replying
from seqloom.serve.app import guarded
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits
from seqloom.serve.runs import Opening, Runs
from seqloom.serve.server import Server
from seqloom.serve.service import Service
from seqloom.serve.smart_reply import opened
from seqloom.web.listening import Address


@contextmanager
def serving_replies(
    *runs: Path,
    log: Path | None = None,
    run: Path | None = None,
    limits: Limits | None = None,
    keys: Keys | None = None,
) -> Iterator[httpx.Client]:
    """A client of a server for a Smart Reply, the one of `replying` or `run`, and for other runs."""
    service = Service.of(Runs(runs, Opening("cpu", 1)), limits or Limits(rate="none"), keys=keys)
    listener = Address(port=0).bound()
    server = Server(guarded(service, replying=opened([run or replying()], log, "cpu", 1)), drain=0.0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(10)
        service.batcher.stop()
