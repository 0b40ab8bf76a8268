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
from seqloom.serve.limits import Limits
from seqloom.serve.replying import opened
from seqloom.serve.runs import Opening, Runs
from seqloom.serve.server import Server
from seqloom.serve.service import Service
from seqloom.web.listening import Address


@contextmanager
def serving_replies(*runs: Path, log: Path | None = None) -> Iterator[httpx.Client]:
    """A client of a server for the run of `replying`, and for these."""
    service = Service.of(Runs(runs, Opening("cpu", 1)), Limits(rate="none"))
    listener = Address(port=0).bound()
    server = Server(guarded(service, replying=opened([replying()], log, "cpu", 1)), drain=0.0)
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
