"""`seqloom export RUN --to ctranslate2` (or onnx): the model for another library to run."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.cli.predict import one_of

TARGETS = ("ctranslate2", "onnx")


def command(
    run: Path = typer.Argument(..., metavar="RUN", help="A run or bundle folder."),
    to: str = typer.Option("ctranslate2", "--to", metavar="ctranslate2|onnx", help="Which library is to run it."),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="The folder to write; RUN/ctranslate2 or RUN/onnx by default."
    ),
    quantise: str | None = typer.Option(
        None,
        "--quantise",
        metavar="int8|int16|float16|bfloat16",
        help="Keep the weights in fewer bits: smaller and faster, a little less exact.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Report the result as JSON on stdout."),
) -> None:
    """Write a model for another library to run.

    'predict --engine' runs it. ctranslate2: Transformers, fast and without torch. onnx: most models, as two graphs,
    the encoder and one step of the decoder.
    """
    one_of("--to", to, TARGETS)
    from seqloom.api.export import export_run

    place = export_run(run, output, quantise, to)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    if as_json:
        say.as_json({"folder": str(place), "to": to, "quantised": quantise, "bytes": size})
        return
    say.talk(f"wrote {place} ({size / 1e6:.1f} MB)")
    if to == "ctranslate2" or output is None:
        name = run if output is None else output
        say.talk("  predict with: " + say.to_type(f"seqloom predict {shlex.quote(str(name))} --engine {to}"))
