"""The server of runs, patient with those who work.

It ends in order: at SIGTERM `/ready` says 503 while requests are still taken, then what is under way is finished.
SIGHUP, or a bundle that changed, loads a run anew.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import threading
from collections.abc import Callable

from seqloom.errors import SeqloomError
from seqloom.interpreter import settle
from seqloom.serve.guard import Guard
from seqloom.serve.kept import Reloadable
from seqloom.serve.service import Service
from seqloom.web import logs
from seqloom.web.listening import Listening

WATCH_SECONDS = 2.0
SWITCH_SECONDS = 0.001


class Server(Listening):
    """Serves runs until it is told to end."""

    def __init__(self, app: Guard, drain: float = 1.0) -> None:
        super().__init__(app)
        self.service: Service = app.service
        self.drain = drain  # seconds in which balancers may notice that it ends
        self._loading = threading.Lock()

    def heard(self) -> dict[signal.Signals, Callable[[], None]]:
        return {**super().heard(), signal.SIGHUP: self.reload_all}

    async def main_loop(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await super().main_loop()
        finally:
            watching.cancel()

    def end(self) -> None:
        """Finish what is under way and end; asked twice, at once."""
        if self.service.draining:
            self.should_exit = True
            return
        self.service.draining = True
        logs.note("stopping", waiting=self.service.batcher.waiting)
        asyncio.get_running_loop().call_later(self.drain, self._exit)

    def _exit(self) -> None:
        self.should_exit = True

    def interrupt(self) -> None:
        self.service.draining = True
        super().interrupt()

    # --- runs that change --------------------------------------------------------------------------------------------

    def reload_all(self) -> None:
        """Load every run anew, without a pause."""
        threading.Thread(target=self._reload, args=(self.service.kept,), daemon=True).start()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            changed = [(name, kept) for name, kept in self.service.kept if kept.changed]
            await asyncio.to_thread(self._reload, changed)

    def _reload(self, every: list[tuple[str, Reloadable]]) -> None:
        for name, kept in every:
            with self._loading:
                self._reload_one(name, kept)

    def _reload_one(self, name: str, kept: Reloadable) -> None:
        """A run that cannot be loaded leaves the one that is served where it is."""
        try:
            kept.reload()
        except SeqloomError as error:
            logs.note("reload refused", run=name, code=error.code, what=error.what, where=error.where)
            self.service.figures.reload("refused")
        except Exception as error:
            logs.trouble("reload failed", error, run=name)
            self.service.figures.reload("failed")
        else:
            logs.note("reloaded", run=name)
            self.service.figures.reload("loaded")


def prepare() -> None:
    """What a process of many connections needs, and one that answers while others compute.

    As many open files as it may have: idle connections must not shut others out. And the interpreter changes threads
    often: who has a request to read or refuse does not wait long for the one that answers. Nor for the collector.
    """
    settle()
    sys.setswitchinterval(SWITCH_SECONDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
