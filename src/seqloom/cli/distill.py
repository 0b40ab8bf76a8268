"""`seqloom distill TEACHER --output FILE`: a training file with the teacher's answers, and the student's recipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.cli.answers import as_one
from seqloom.cli.sink import Sink, same_file
from seqloom.errors import SeqloomError


def command(
    teachers: list[str] = typer.Argument(
        ..., metavar="TEACHER [TEACHER ...]", help="A run, or several as an ensemble."
    ),
    output: Path = typer.Option(
        ..., "--output", "-o", metavar="FILE", help="The student's training file: .tsv or .jsonl."
    ),
    recipe: Path | None = typer.Option(
        None, "--recipe", metavar="FILE", help="Where to write the student's recipe; else stdout."
    ),
    data: Path | None = typer.Option(
        None, "--data", metavar="RECIPE", help="A recipe with the student's model and data; by default the teacher's."
    ),
    beam: int = typer.Option(5, "--beam", "-b", min=1, help="Beam search of this size."),
    ensemble: bool = typer.Option(False, "--ensemble", help="Average the probabilities of several teachers."),
    keep_gold: float = typer.Option(0.0, "--keep-gold", help="Share of the pairs that keep their gold target."),
    predictions: str | None = typer.Option(
        None, "--predictions", metavar="FILE", help="Answers that were made elsewhere: one line per training source."
    ),
    device: str = typer.Option("auto", "--device", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No talk and no progress."),
    as_json: bool = typer.Option(False, "--json", help="Report as JSON on stdout, the recipe included."),
) -> None:
    """Let a model answer its training sources, for a smaller one."""
    if len(teachers) > 1 and not ensemble:
        raise SeqloomError(
            "E_USAGE", f"{len(teachers)} teachers given", fix="--ensemble averages them; or give one run"
        )
    if ensemble:
        teachers = as_one(teachers)
    _spare(output, recipe, data)
    from seqloom.api.distill import Distillation, distill

    wishes = Distillation(
        output=output,
        recipe=data,
        beam=beam,
        keep_gold=keep_gold,
        predictions=predictions,
        device=device,
        threads=threads,
        tell=(lambda line: None) if quiet else say.talk,
        watch=(lambda answers, total: answers) if quiet else _watched,
    )
    found = distill(teachers, wishes)
    if recipe is not None:
        with Sink(recipe) as out:
            out.write(found.recipe)
    if as_json:
        say.as_json(found.as_dict())
    elif recipe is None:
        say.data(found.recipe.rstrip("\n"))
    if not quiet:
        kept = f", {found.gold:,} with their gold target" if found.gold else ""
        lost = f"; {found.left_out:,} sources have no answer and are left out" if found.left_out else ""
        say.talk(f"{output}: {found.taught:,} pairs with the teacher's target{kept}{lost}")
        for part, path in found.held_out.items():
            say.talk(f"{path}: the pairs held out for {part}, as they were")
        if recipe is not None:
            say.talk(f"next: make the model in {recipe} smaller, then\n  seqloom train {recipe}")


def _spare(output: Path, recipe: Path | None, data: Path | None) -> None:
    """Nothing that is written takes the place of what is read, of each other, or of a device."""
    if output.exists() and not output.is_file():
        raise SeqloomError("E_USAGE", "--output is no regular file", where=str(output), fix="name another")
    if recipe is not None and recipe.resolve() == output.resolve():
        raise SeqloomError("E_USAGE", "--recipe would replace --output", where=str(recipe), fix="name another")
    for written in (output, recipe):
        if written is not None and data is not None and same_file(written, data):
            raise SeqloomError("E_USAGE", "--data would be replaced", where=str(data), fix="name another file")


def _watched(answers: Iterable[str | None], total: int) -> Iterable[str | None]:
    """A bar on stderr where a person watches."""
    if not sys.stderr.isatty():
        return answers
    from rich.console import Console
    from rich.progress import track

    return track(answers, total=total, description="distilling", console=Console(stderr=True), transient=True)
