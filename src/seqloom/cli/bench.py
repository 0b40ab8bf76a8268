"""`seqloom bench RUN`: how fast this model answers on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.cli.predict import one_of
from seqloom.errors import SeqloomError

EXPORTED = ("ctranslate2", "onnx")
ENGINES = ("seqloom", "int8", *EXPORTED)


def command(
    run: Path = typer.Argument(..., metavar="RUN", help="A run or bundle folder."),
    given: str | None = typer.Argument(
        None, metavar="[INPUT]", help="A file of sources, one per line; the run's test set by default."
    ),
    beam: str = typer.Option("1,5", "--beam", "-b", metavar="SIZES", help="Sizes of the beam; 1 is greedy."),
    batch: str = typer.Option("1,16,64", "--batch", metavar="SIZES", help="So many sources at once."),
    device: str = typer.Option("auto", "--device", metavar="DEVICES", help="auto, cpu, cuda; several by commas."),
    engine: str | None = typer.Option(
        None,
        "--engine",
        metavar="ENGINES",
        help="seqloom, int8, ctranslate2, onnx, by commas; by default seqloom and all that the run was exported to.",
    ),
    seconds: float = typer.Option(2.0, "--seconds", min=0.0, help="How long one window is."),
    windows: int = typer.Option(3, "--windows", min=1, help="Windows of each way; their median counts."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    workers: int = typer.Option(
        1, "--workers", min=1, max=1024, help="Processes that share each batch on a CPU, of one thread each."
    ),
    as_json: bool = typer.Option(False, "--json", help="Report the result as JSON on stdout."),
) -> None:
    """Measure how fast a model answers on this machine.

    Tokens per second and latency by batch size, beam, device and engine, all in turns.
    """
    beams, batches = _sizes("--beam", beam), _sizes("--batch", batch)
    engines = _engines(run, engine)
    for name in engines:
        one_of("--engine", name, ENGINES)
    from seqloom.api.bench import bench
    from seqloom.data.readers import read_sources

    texts = None if given is None else [line for line in read_sources(given) if line.strip()]

    def planned(ways: int) -> None:
        if not as_json:
            say.talk(f"{ways} ways, {windows} windows of {seconds:g} s each: about {ways * windows * seconds:.0f} s")

    found = bench(
        run,
        texts,
        beams=beams,
        batches=batches,
        devices=device.split(","),
        engines=engines,
        seconds=seconds,
        windows=windows,
        threads=threads,
        workers=workers,
        planned=planned,
    )
    if as_json:
        say.as_json(found.as_dict())
        return
    rows = [
        (
            speed.way.engine,
            speed.way.device,
            speed.way.beam,
            speed.way.batch,
            f"{speed.tokens_per_second:,.0f}",
            f"{speed.texts_per_second:,.1f}",
            f"{1000 * speed.seconds:,.1f}",
            f"{1000 * speed.seconds_95:,.1f}",
        )
        for speed in found.speeds
    ]
    machine = found.machine
    columns = ("engine", "device", "beam", "batch", "tokens/s", "texts/s", "ms a batch", "95 % under")
    note = f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores, torch {machine['torch']}"
    say.table(f"{found.name}: {found.texts:,} texts", columns, rows, [note])


def _sizes(option: str, given: str) -> list[int]:
    parts = given.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise SeqloomError("E_USAGE", f"{option} {given!r}: sizes by commas, each at least 1", fix=f"{option} 1,16,64")
    return [int(part) for part in parts]


def _engines(run: Path, given: str | None) -> list[str]:
    if given is not None:
        return given.split(",")
    return [ENGINES[0], *(name for name in EXPORTED if (run / name).is_dir())]
