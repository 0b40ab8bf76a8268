"""`seqloom init DATA`: look at the examples and write a commented recipe that suits them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from seqloom.cli import say
from seqloom.cli.predict import BAD_UTF8, one_of
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seqloom.api.init import Choices
    from seqloom.config import Plain
    from seqloom.data.kinds import Task

FEW = 500  # pairs


def command(
    data: str = typer.Argument(
        ...,
        metavar="DATA",
        help="Pairs, labels, tags or text: TSV, JSON lines, CoNLL-U, .txt, {path: FILE, columns: [2, 0]}, or sources.",
    ),
    target: str | None = typer.Argument(
        None, metavar="[TARGET]", help="The file of targets, where DATA has the sources."
    ),
    output: str = typer.Option(
        "recipe.yaml", "--output", "-o", metavar="FILE", help="Where to write the recipe; - is stdout."
    ),
    task: str | None = typer.Option(
        None,
        "--task",
        metavar="TASK",
        help="What it is for, if the guess is wrong: transduce, label, labels, number, tags, language, retrieve.",
    ),
    source_language: str | None = typer.Option(None, "--source-language", metavar="CODE", help="A code such as en."),
    target_language: str | None = typer.Option(None, "--target-language", metavar="CODE", help="A code such as de."),
    on_bad_utf8: str = typer.Option(
        "error", "--on-bad-utf8", metavar="ACTION", help="Lines that are not UTF-8: error, skip or replace."
    ),
    force: bool = typer.Option(False, "--force", "-f", help="Replace a recipe that is already there."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="No talk, and no estimate of the time."),
) -> None:
    """Write a recipe that suits the data, and say why."""
    one_of("--on-bad-utf8", on_bad_utf8, BAD_UTF8)
    goal = Path(output)
    if any(goal.exists() and Path(name).exists() and goal.samefile(name) for name in (data, target) if name):
        raise SeqloomError("E_USAGE", "the recipe would replace the data", where=output, fix="name another --output")
    if output != "-" and goal.exists() and not goal.is_file():
        raise SeqloomError("E_USAGE", "not a file that a recipe could be written to", where=output, fix="- is stdout")
    if output != "-" and goal.exists() and not force:
        fix = "--force replaces it, --output writes elsewhere"
        raise SeqloomError("E_USAGE", "there is a file of this name already", where=output, fix=fix)

    from seqloom.api.draft import written
    from seqloom.api.init import choose, guess_language
    from seqloom.api.testset import named_dataset
    from seqloom.api.timing import estimated_seconds
    from seqloom.config import parse_yaml
    from seqloom.data.files import mending
    from seqloom.data.kinds import TASKS
    from seqloom.data.sniffing import meant
    from seqloom.files import atomic_write
    from seqloom.recipe import recipe_from

    if task is not None:
        one_of("--task", task, TASKS)
    dataset: Plain = data if target is None else {"source": data, "target": target}
    if target is None and data.lstrip().startswith("{"):
        dataset = cast("Plain", parse_yaml(data, "DATA"))
    dataset = meant(dataset, cast("Task | None", task))
    found = named_dataset(cast("str | Mapping[str, object]", dataset), "DATA")
    with mending("--on-bad-utf8 skip or replace"):
        choices = choose(found, on_bad_utf8, task=task)  # type: ignore[arg-type]
    guessed = (guess_language(data), guess_language(target)) if target is not None else ("und", "und")
    languages = (source_language or guessed[0], target_language or guessed[1])
    text = written(choices, dataset, languages, on_bad_utf8)
    raw = parse_yaml(text, output)
    assert isinstance(raw, dict)
    recipe = recipe_from(raw, "--source-language, --target-language" if source_language or target_language else output)
    if output == "-":
        say.data(text.rstrip("\n"))
    else:
        atomic_write(goal, text.encode())
    if quiet:
        return
    for line in _remarks(choices):
        say.talk(line)
    if choices.files is None and choices.task != "retrieve":
        say.talk(f"{choices.steps:,} steps: about {_span(estimated_seconds(recipe, choices))} on this machine")
    if output != "-":
        say.talk(f"written: {output}\nnext:\n  seqloom train {shlex.quote(output)}")


def _span(seconds: float) -> str:
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{round(seconds)} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"


def _remarks(choices: Choices) -> list[str]:
    read = choices.source.tokenizer if choices.files is None else choices.files.kind
    cut = f"source: {read}, target: {choices.target.tokenizer}"
    if choices.task == "language":
        cut = f"text: {choices.target.tokenizer}"
    lines = [f"{choices.examples}; {cut}"]
    if not choices.asked:
        lines.append(f"{choices.guess.told}; --task says otherwise")
    if choices.guess.doubt:
        lines.append(choices.guess.doubt)
    if choices.profile.pairs < FEW and choices.task != "language":
        lines.append(f"only {choices.examples}: expect little, and add more if you can")
    lines.append("'seqloom check' looks for trouble in the data")
    return lines
