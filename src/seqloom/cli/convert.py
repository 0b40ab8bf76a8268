"""`seqloom convert MODEL`: a model that another tool trained, as a bundle."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from seqloom.cli import say


def command(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model's folder, or a Marian .npz."),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="The folder to write; runs/NAME by default."
    ),
    tool: str | None = typer.Option(
        None,
        "--tool",
        metavar="huggingface|marian|joeynmt|opennmt",
        help="Which tool wrote it; told from its files by default.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Report the result as JSON on stdout."),
) -> None:
    """Make a bundle of a model that another tool trained.

    Marian, as Hugging Face or Marian itself saves it; JoeyNMT and OpenNMT-py Transformers that were saved as
    safetensors. The bundle says what the model said. Nothing that is read is unpickled.
    """
    from seqloom.api.convert import convert

    made = convert(model, output, tool)
    if as_json:
        say.as_json(made.as_dict())
        return
    source, target = made.vocabularies
    say.talk(
        f"wrote {made.folder}: a {made.tool} model of {made.parameters:,} parameters, {source:,}/{target:,} pieces"
    )
    for note in made.notes:
        say.talk(f"  {note}")
    say.talk("  predict with: " + say.to_type(f"seqloom predict {shlex.quote(str(made.folder))}"))
