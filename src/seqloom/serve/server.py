"""uvicorn, made patient with those who work and impatient with those who do not.

It ends in order: at SIGTERM `/ready` says 503 while requests are still taken, then what is under way is finished.
SIGHUP, or a bundle that changed, loads a run anew. Sockets on which no request arrives are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqloom.errors import SeqloomError
from seqloom.serve import logs
from seqloom.serve.guard import Guard
from seqloom.serve.service import Service

HEADER_SECONDS = 10.0  # for a whole request line with its headers
IDLE_SECONDS = 5  # between two requests on one connection
WATCH_SECONDS = 2.0
SWITCH_SECONDS = 0.001


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0: any that is free."""

    host: str = "127.0.0.1"
    port: int = 5000

    def bound(self) -> socket.socket:
        """A socket there; E_USAGE where that cannot be."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
        except (OSError, OverflowError) as error:
            listener.close()
            what = f"cannot listen there: {error.strerror if isinstance(error, OSError) else error}"
            fix = "choose another --port or --host"
            raise SeqloomError("E_USAGE", what, where=f"{self.host}:{self.port}", fix=fix) from None
        return listener


class Impatient(H11Protocol):
    """HTTP/1.1 on a connection that is closed when no whole request arrives in time."""

    _hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._relax()
        self._hurry = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _relax(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """Serves one app until it is told to end."""

    def __init__(self, app: Guard, drain: float = 1.0) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Impatient,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                backlog=4096,
            )
        )
        self.service: Service = app.service
        self.drain = drain  # seconds in which balancers may notice that it ends
        self.interrupted = False  # by Ctrl-C
        self._loading = threading.Lock()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Ours, instead of uvicorn's: those end the process by the signal, not with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.end)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGHUP, self.reload_all)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

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

    def _interrupt(self) -> None:
        self.interrupted = self.service.draining = True
        self.force_exit = self.should_exit  # the second time
        self.should_exit = True

    # --- runs that change --------------------------------------------------------------------------------------------

    def reload_all(self) -> None:
        """Load every run anew, without a pause."""
        names = self.service.runs.names
        threading.Thread(target=self._reload, args=(names,), daemon=True).start()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.to_thread(self._reload, self.service.runs.changed())

    def _reload(self, names: list[str]) -> None:
        for name in names:
            with self._loading:
                self._reload_one(name)

    def _reload_one(self, name: str) -> None:
        """A run that cannot be loaded leaves the one that is served where it is."""
        try:
            self.service.runs.reload(name)
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
    often: who has a request to read or refuse does not wait long for the one that answers.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
