"""`seqloom serve RUN...`: runs over HTTP, for clients of LibreTranslate and for our own."""

from __future__ import annotations

from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.errors import INTERRUPTED, SeqloomError

PACKAGES = {"fastapi", "fastapi_offline", "uvicorn", "multipart", "limits", "prometheus_client", "py3langid"}


def command(
    runs: list[str] = typer.Argument(..., metavar="RUN...", help="The runs to serve; the first is the usual one."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; beyond this machine only with --keys."),
    port: int = typer.Option(5000, min=0, max=65535, help="Port to listen on; 0: any that is free."),
    keys: Path = typer.Option(None, metavar="FILE", help="Only keys of this file open ('seqloom keys' makes them)."),
    insecure: bool = typer.Option(False, "--insecure", help="Listen beyond this machine without keys."),
    name: list[str] = typer.Option([], "--name", metavar="HOST", help="A name that this server is reached by."),
    deterministic: bool = typer.Option(
        False, "--deterministic", help="One source at a time: byte for byte as predict --deterministic."
    ),
    characters: int = typer.Option(10_000, min=1, help="Limit: characters of a request."),
    batch: int = typer.Option(64, min=1, help="Limit: texts of a request."),
    beam: int = typer.Option(10, min=1, help="Limit: hypotheses or samples."),
    n_best: int = typer.Option(10, "--n-best", min=1, help="Limit: outputs of a text."),
    max_length: int = typer.Option(1024, "--max-length", min=1, help="Limit: tokens of an output."),
    body: int = typer.Option(1_000_000, min=1, help="Limit: bytes of a request's body."),
    upload: int = typer.Option(10_000_000, min=1, help="Limit: bytes of a request with a picture or sound."),
    rate: str = typer.Option("600/minute", help="Limit: requests of a key or address; none: no limit."),
    queue: int = typer.Option(1024, min=1, help="Texts that may wait; beyond, requests are refused at once."),
    deadline: float = typer.Option(30.0, help="Seconds after which nobody waits any more."),
    patience: float = typer.Option(5.0, help="Milliseconds that a text waits for others to be answered with."),
    budget: int = typer.Option(16_384, min=1, help="Characters that are answered together."),
    drain: float = typer.Option(1.0, min=0.0, help="Seconds between SIGTERM and the end of listening."),
    int8: bool = typer.Option(False, "--int8", help="On a CPU: weights in 8 bits, faster and a little less exact."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(1, min=1, help="CPU threads of the one that answers."),
    examples: bool = typer.Option(
        None, "--examples/--no-examples", help="Show training examples near a text; by default on this machine only."
    ),
    reply_log: Path = typer.Option(None, "--reply-log", metavar="FILE", help="Smart Reply: keep what became of it."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Log only errors."),
) -> None:
    """Serve runs over HTTP until SIGTERM or Ctrl-C.

    A page to play with is at / (a run of Smart Reply has its own at /reply), the contract of LibreTranslate at the root
    too, our own routes are under /v1, and /docs describes both. SIGHUP, or a run whose bundle changes, loads it anew.
    """
    refuse_missing()
    refuse_open(host, keys, insecure)
    import logging

    from seqloom.config import validated
    from seqloom.serve.app import guarded
    from seqloom.serve.batcher import Pace
    from seqloom.serve.keys import Keys
    from seqloom.serve.limits import Limits, checked_rate
    from seqloom.serve.runs import Opening, Runs
    from seqloom.serve.server import Server, prepare
    from seqloom.serve.service import Service
    from seqloom.serve.smart_reply import is_reply
    from seqloom.serve.smart_reply import opened as opened_reply
    from seqloom.web import logs
    from seqloom.web.listening import Address

    wanted = {"characters": characters, "batch": batch, "beam": beam, "n_best": n_best, "max_length": max_length}
    limits = validated(Limits, {**wanted, "body": body, "upload": upload, "rate": checked_rate(rate)}, "limits")
    waits = {"room": queue, "budget": budget, "patience": patience / 1000, "deadline": deadline}
    try:
        pace = validated(Pace, waits, "--queue, --budget, --patience, --deadline")
    except SeqloomError as error:
        raise SeqloomError("E_USAGE", error.what, where=error.where, fix="'seqloom serve --help' shows how") from None
    opened = Keys(keys) if keys is not None else None
    address = Address(host, port)
    listener = address.bound()
    places = [Path(run) for run in runs]
    replies = [place for place in places if is_reply(place)]
    replying = opened_reply(replies, reply_log, device, threads)
    served = Runs([place for place in places if place not in replies], Opening(device, threads, int8))
    service = Service.of(served, limits, pace, keys=opened, deterministic=deterministic, threads=threads)
    service.at_home = is_at_home(host, keys, name)
    service.shows_examples = service.at_home if examples is None else examples
    logs.start(logging.ERROR if quiet else logging.INFO)
    prepare()
    server = Server(guarded(service, name, replying), drain)
    names = [*served.names, *([] if replying is None else [f"{replying.name} (Smart Reply: /reply)"])]
    say.talk(f"serving {', '.join(names)}")
    say.talk(f"{address.url(listener)} (the page; routes: /docs; Ctrl-C ends)")
    server.run([listener])
    service.batcher.stop()
    if server.interrupted:
        raise typer.Exit(INTERRUPTED)


def refuse_missing() -> None:
    """E_EXTRA where the packages that serve are not installed."""
    from importlib.util import find_spec

    missing = sorted(package for package in PACKAGES if find_spec(package) is None)
    if missing:
        what = f"{missing[0]} is not installed"
        raise SeqloomError("E_EXTRA", what, fix="pip install 'seqloom[serve]'")


def refuse_open(host: str, keys: Path | None, insecure: bool) -> None:
    """E_USAGE for a server that anybody in the network could use."""
    from seqloom.web.listening import Address

    if keys is None and not insecure and not Address(host).is_near:
        what = f"--host {host} is reached from other machines, and there are no keys"
        raise SeqloomError("E_USAGE", what, fix="--keys FILE ('seqloom keys add' makes one), or --insecure")


def is_at_home(host: str, keys: Path | None, names: list[str]) -> bool:
    """Does only whoever sits at this machine ask? A name, or keys, are for others, who come through a proxy."""
    from seqloom.web.listening import Address

    return Address(host).is_near and keys is None and not names
