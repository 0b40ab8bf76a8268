"""`seqloom average`: the mean of a run's checkpoints as a new bundle."""

from __future__ import annotations

from pathlib import Path

import typer

from seqloom.cli import say


def command(
    run: Path = typer.Argument(..., metavar="RUN", help="The run whose checkpoints to average."),
    checkpoints: list[str] = typer.Argument(
        None, metavar="[CHECKPOINT ...]", help="Steps or names; all that are kept by default."
    ),
    last: int = typer.Option(None, help="Average the last N checkpoints."),
    output: Path = typer.Option(None, metavar="FOLDER", help="Where to write the bundle; RUN/averaged by default."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Average checkpoints into a new bundle, and say if that helped."""
    from seqloom.api.average import average_run
    from seqloom.api.load import load

    result = average_run(
        run,
        checkpoints or (),
        last=last,
        output=output,
        load_model=lambda folder: load(folder, device=device, threads=threads),
    )
    if as_json:
        say.as_json(result.as_dict())
        return
    rows = [[name, f"{result.before[name]:.4f}", f"{value:.4f}"] for name, value in result.after.items()]
    say.table(f"Mean of {', '.join(result.checkpoints)}", ["dev", "run's bundle", "average"], rows)
    equal = result.after[result.metric] == result.before[result.metric]
    verdict = "better" if result.improved else "as good" if equal else "not better"
    say.data(f"By {result.metric} the average is {verdict}; it is in {say.shown(result.folder)}")
    say.talk(f"next: seqloom evaluate {say.shown(result.folder)}")
