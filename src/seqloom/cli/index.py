"""`seqloom index RUN [FILE]`: the candidates that a dual encoder answers with, and their vectors."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.errors import SeqloomError


def command(
    run: Path = typer.Argument(..., metavar="RUN", help="A run or bundle of a dual encoder."),
    candidates: str = typer.Argument(
        None, metavar="[FILE]", help="Candidates, one per line (also .gz, or -); else the targets of its training data."
    ),
    output: Path = typer.Option(None, "--output", "-o", metavar="FOLDER", help="Write it there, not to RUN/index."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
) -> None:
    """Compute the vectors of all candidates, for 'predict --top'.

    Each text is kept once. After more training the index must be made again: one of other weights is refused.
    """
    from seqloom.api.retriever import load_retriever, training_targets
    from seqloom.data.readers import read_sources

    retriever = load_retriever(run, index=output, device=device, threads=threads)
    started_at = time.monotonic()
    texts = training_targets(retriever) if candidates is None else read_sources(candidates)
    index, long = retriever.indexed(texts)
    if not len(index):
        where = "the training targets" if candidates is None else candidates
        what = f"no candidate: {long:,} over the recipe's maximum" if long else "no candidate: every line is empty"
        raise SeqloomError("E_EMPTY", what, where=where, fix="one text per line")
    index.save(retriever.index_folder, retriever.computed_by)
    seconds = time.monotonic() - started_at
    if as_json:
        folder = str(retriever.index_folder)
        return say.as_json({"index": folder, "candidates": len(index), "over_long": long, "seconds": seconds})
    say.data(str(retriever.index_folder))
    left_out = f"; {long:,} over-long left out" if long else ""
    say.talk(f"{len(index):,} different candidates in {seconds:.1f} s{left_out}")
    place = "" if output is None else f" --index {say.shown(output)}"
    say.talk("next:\n  " + say.to_type(f'seqloom predict {say.shown(run)}{place} --top 5 --text "..."'))
