"""`seqloom compare A B`: which of two systems is better, how sure that is, and where they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.cli.evaluate import OnLong, Part

if TYPE_CHECKING:
    from seqloom.api.compare import SystemComparison
    from seqloom.api.model import Model


def command(
    a: str = typer.Argument(..., metavar="A", help="A run, or an output file of any tool."),
    b: str = typer.Argument(..., metavar="B", help="Another run or output file for the same test."),
    data: str = typer.Option(
        None, metavar="FILE", help="Test pairs: a .tsv or .jsonl file (also .gz), or {source: F, target: F}."
    ),
    source: str = typer.Option(None, metavar="FILE", help="Test sources, one per line."),
    reference: list[str] = typer.Option(None, metavar="FILE", help="References, line by line beside the sources."),
    part: Part = typer.Option(Part.TEST, help="Which part of the first run's own data to compare on."),
    metric: list[str] = typer.Option(None, metavar="METRIC", help="Such as bleu or bleu:order=2."),
    beam: int = typer.Option(None, help="Beam size; each recipe's search if not given (1 is greedy)."),
    on_long: OnLong = typer.Option(OnLong.SKIP, help="Sources over the recipe's maximum: skipped ones count as wrong."),
    show: int = typer.Option(5, min=0, help="How many of the sentences that differ most to show."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Say whether B is better than A, and show where they differ most."""
    from seqloom.api.compare import compare
    from seqloom.api.options import Options
    from seqloom.api.testset import chosen_examples
    from seqloom.config import validated

    options = validated(Options, {"beam": beam, "on_long": on_long.value}, "options")
    systems = _opened(a, b, device, threads)
    recipe = next((system.recipe for system in systems if not isinstance(system, str)), None)
    examples = chosen_examples(recipe, data, source, reference or (), part.value, recipe is not None)
    report = compare(*systems, examples, options, metrics=metric or None, show=show)
    if as_json:
        say.as_json(report.as_dict())
        return
    _print(report)


def _opened(a: str, b: str, device: str, threads: int | None) -> tuple[Model | str, Model | str]:
    """Models for folders, paths for files; models of one name are called by what was typed."""
    from seqloom.api.load import load

    same = Path(a).name == Path(b).name
    found = []
    for path in (a, b):
        model = load(path, device=device, threads=threads) if Path(path).is_dir() else None
        found.append(path if model is None else replace(model, name=path) if same else model)
    return found[0], found[1]


def _print(report: SystemComparison) -> None:
    rows: list[list[object]] = []
    for row in report.metrics:
        chance = row.randomisation
        rows.append(
            [
                row.name,
                f"{chance.a:.2f}",
                f"{chance.b:.2f}",
                f"{chance.difference:+.2f}",
                f"{chance.low:+.2f} to {chance.high:+.2f}",
                f"{chance.p:.4f}",
                f"{row.wins.a:,} / {row.wins.ties:,} / {row.wins.b:,}",
            ]
        )
    columns = ["metric", "A", "B", "B - A", "95 % interval", "p", "A / ties / B"]
    note = "A / ties / B: sentences that A does better, both alike, B better"
    say.table(f"A = {report.a}, B = {report.b}: {report.sentences:,} sentences", columns, rows, [note])
    for row in report.metrics:
        winner = {"a": f"A ({report.a}) is better", "b": f"B ({report.b}) is better"}
        verdict = "no difference is proven" if row.better is None else winner[row.better]
        tests = f"approximate randomisation p = {row.randomisation.p:.4f}, paired bootstrap p = {row.bootstrap.p:.4f}"
        say.data(f"{row.name}: {verdict} ({tests})")
    for note in report.notes:
        say.data(f"Caution: {note}")
    for row in report.metrics:
        say.data(f"{row.name}  {row.signature}")
    if report.contrasts:
        say.data(f"\nSentences that differ most by {report.metrics[0].name}")
    for contrast in report.contrasts:
        say.data(f"\n{contrast.where}")
        if contrast.source:
            say.data(f"  source     {contrast.source}")
        for text in contrast.references:
            say.data(f"  reference  {text}")
        say.data(f"  A {contrast.value_a:8.2f} {contrast.a}")
        say.data(f"  B {contrast.value_b:8.2f} {contrast.b}")
