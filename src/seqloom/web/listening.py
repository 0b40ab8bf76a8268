"""uvicorn, made impatient with those who do not work: sockets on which nothing arrives or is read are closed.

It ends by SIGTERM with 0 and says whether it was Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqloom.errors import SeqloomError

HEADER_SECONDS = 10.0  # for a whole request line with its headers
READ_SECONDS = 20.0  # in which a client must read something of what waits for it
IDLE_SECONDS = 5  # between two requests on one connection


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0: any that is free."""

    host: str = "127.0.0.1"
    port: int = 5000

    @property
    def is_near(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bound(self) -> socket.socket:
        """A socket there; E_USAGE where that cannot be."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, proto=socket.IPPROTO_TCP)  # named, so that asyncio sends at once (no delay)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
        except (OSError, OverflowError) as error:
            listener.close()
            what = f"cannot listen there: {error.strerror if isinstance(error, OSError) else error}"
            fix = "choose another --port or --host"
            raise SeqloomError("E_USAGE", what, where=f"{self.host}:{self.port}", fix=fix) from None
        return listener

    def url(self, listener: socket.socket, name: str = "") -> str:
        """How a browser calls the socket that is bound here: by a name where it has one."""
        host = name or self.host
        place = f"[{host}]" if ":" in host else host
        return f"http://{place}:{listener.getsockname()[1]}"


class Impatient(H11Protocol):
    """HTTP/1.1 on a connection that is closed when no whole request arrives in time, or its answer is not read."""

    _hurry: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        self._heard()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More of an answer waits than is good: its reader must make room, however little."""
        super().pause_writing()
        self._listens(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._heard()
        super().resume_writing()

    def _listens(self, left: int) -> None:
        self._unread = self.loop.call_later(READ_SECONDS, self._still_listens, left)

    def _still_listens(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()  # what is not read would be kept for ever
        else:
            self._listens(left)

    def _heard(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def _expect(self) -> None:
        self._relax()
        self._hurry = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _relax(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()  # what is still to be sent is sent, to somebody who reads
            self._hurry = self.loop.call_later(READ_SECONDS, self.transport.abort)


class Listening(uvicorn.Server):
    """Serves one app until it is told to end."""

    def __init__(self, app: ASGIApp) -> None:
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
        self.interrupted = False  # by Ctrl-C

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Ours, instead of uvicorn's: those end the process by the signal, not with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        heard = self.heard()
        for number, answer in heard.items():
            loop.add_signal_handler(number, answer)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def heard(self) -> dict[signal.Signals, Callable[[], None]]:
        """What each signal makes it do."""
        return {signal.SIGTERM: self.end, signal.SIGINT: self.interrupt}

    def end(self) -> None:
        """Finish what is under way and end."""
        self.should_exit = True

    def interrupt(self) -> None:
        """The same, at once when asked twice."""
        self.interrupted = True
        self.force_exit = self.should_exit
        self.should_exit = True
