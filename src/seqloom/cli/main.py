"""The one binary: `seqloom COMMAND ...`. Data to stdout, talk to stderr, one line per error, stable exit codes.

Every command is one file that parses, calls `seqloom.api` and prints. Nothing here imports torch, so that
`seqloom --help` is there at once; commands import what they need when they run.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click
import typer

from seqloom.cli import average, check, compare, config, demo, evaluate, info, init, predict, score, train
from seqloom.errors import INTERRUPTED, SeqloomError, nearest

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.command,
    "init": init.command,
    "check": check.command,
    "train": train.command,
    "predict": predict.command,
    "score": score.command,
    "evaluate": evaluate.command,
    "compare": compare.command,
    "average": average.command,
    "config": config.command,
    "info": info.command,
}

app = typer.Typer(
    name="seqloom",
    help="From paired sequences to a model you can see inside of.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from seqloom import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given))


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line; every error is one line on stderr, with a traceback only under --debug."""
    given = list(arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]  # welcome anywhere on the line
    try:
        code = app(args=given, prog_name="seqloom", standalone_mode=False)
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else 0
    except SeqloomError as error:
        return _refused(error, debug)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        return _refused(_usage(error), debug)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader went away (`| head`): not an error of anyone's
        _silence_stdout()
        return 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except MemoryError:
        return _refused(SeqloomError("E_MEMORY", "out of memory", fix="use smaller batches"), debug)
    except Exception as error:
        if debug:
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return _refused(SeqloomError("E_INTERNAL", what, fix="--debug shows where; please report it"), False)


def _usage(error: click.ClickException) -> SeqloomError:
    """click's complaint as ours, with the nearest command or option."""
    message = error.format_message().rstrip(".")
    if message.startswith("No such command"):
        wrong = message.split("'")[1] if "'" in message else ""
        message += nearest(wrong, COMMANDS)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "seqloom"
    return SeqloomError("E_USAGE", message, fix=f"'{command} --help' shows how")


def _refused(error: SeqloomError, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(error.line, file=sys.stderr)
    return error.exit_code


def _silence_stdout() -> None:
    """Keep the interpreter's last flush from complaining about the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
