"""The one binary: `seqloom COMMAND ...`. Data to stdout, talk to stderr, one line per error, stable exit codes.

Every command is one file that parses, calls `seqloom.api` and prints. Nothing here imports torch, so that
`seqloom --help` is there at once; commands import what they need when they run.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import typer

from seqloom.cli import (
    align,
    average,
    bench,
    check,
    compare,
    config,
    convert,
    data,
    demo,
    distill,
    evaluate,
    explain,
    export,
    index,
    info,
    init,
    keys,
    lexicon,
    predict,
    rate,
    reply,
    say,
    score,
    serve,
    train,
)
from seqloom.cli.help import PlainCommand
from seqloom.errors import INTERRUPTED, SeqloomError, nearest
from seqloom.interpreter import SOME, keep_memory
from seqloom.ranks.launch import launched

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.command,
    "init": init.command,
    "check": check.command,
    "train": train.command,
    "predict": predict.command,
    "score": score.command,
    "evaluate": evaluate.command,
    "compare": compare.command,
    "explain": explain.command,
    "align": align.command,
    "serve": serve.command,
    "keys": keys.command,
    "reply": reply.command,
    "rate": rate.command,
    "average": average.command,
    "distill": distill.command,
    "export": export.command,
    "convert": convert.command,
    "data": data.command,
    "index": index.command,
    "lexicon": lexicon.command,
    "bench": bench.command,
    "config": config.command,
    "info": info.command,
}

# The base of what typer raises for a command line it cannot obey. Older typers take it from click, newer ones carry a
# copy of click of their own: this way round we catch whichever it is.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]


def _app(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands: each takes milliseconds to be looked at."""
    made = typer.Typer(
        name="seqloom",
        help="From paired sequences to a model you can see inside of.",
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in names:
        made.command(name, cls=PlainCommand)(COMMANDS[name])
    made.callback(invoke_without_command=True)(_options)
    return made


def _options(
    context: typer.Context,
    debug: bool = typer.Option(
        False, "--debug", help="Show the traceback of an error, and what is logged at level debug."
    ),
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from seqloom import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def program() -> None:
    """What the binary runs: `main`, and the short way out. To take down all that torch has loaded, piece by piece,
    would take longer than to answer a line; what was promised for the end (`atexit`) is done."""
    try:
        main()
    except SystemExit as stop:
        if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            raise
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(stop.code if isinstance(stop.code, int) else int(stop.code is not None))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_missing_streams()
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):  # whatever the locale: what we write is UTF-8, and file names survive
            stream.reconfigure(encoding="utf-8", errors=errors)
    keep_memory(SOME)
    code = run(given)
    if code:
        _leave_the_others(code)
    sys.exit(code)


def _leave_the_others(code: int) -> None:
    """One of several processes that failed ends here: what they share would wait for those that are gone."""
    with suppress(SeqloomError):
        if launched() is not None:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _open_missing_streams() -> None:
    """Streams that the caller closed (`<&-`) become ones that refuse: to read or write them is then an error with a
    name, and no file that is opened later takes their number and gets what was meant for them. Talk is dropped.
    """
    modes = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}  # the first two the wrong way round
    for name, mode in modes.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, mode)  # the lowest that is free: its own
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line; every error is one line on stderr, with a traceback only under --debug."""
    # GNU OpenMP's threads spin while they wait. Beside another busy process they then starve each other, and training
    # becomes ten times slower; a short spin costs nothing alone. It is read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    given = list(arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]  # welcome anywhere on the line
    if debug:
        _log_all()
    try:
        app = _app(given[:1] if given and given[0] in COMMANDS else COMMANDS)
        code = app(args=given, prog_name="seqloom", standalone_mode=False)
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as stop:
        if isinstance(stop, BrokenPipeError) or isinstance(stop.__context__, BrokenPipeError):  # click makes it an exit
            _silence_stdout()
            return 0  # the reader went away (`| head`): not an error of anyone's
        return stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        refusal = _refusal(error)
        say.talk(refusal.line)
        return refusal.exit_code


def _log_all() -> None:
    """Our lines of level debug, the only ones that may hold text of the user's, to stderr."""
    import logging

    logger = logging.getLogger("seqloom")
    logger.setLevel(logging.DEBUG)
    logger.handlers = [logging.StreamHandler(sys.stderr)]


def _refusal(error: Exception) -> SeqloomError:
    """Any error as one of ours."""
    if isinstance(error, SeqloomError):
        return error
    if isinstance(error, UsageProblem):
        return _usage(error)
    if _is_out_of_memory(error):
        return SeqloomError("E_MEMORY", "out of memory", fix="use smaller batches, fewer workers or a narrower beam")
    if isinstance(error, OSError):
        if error.filename is None:  # of no file that we opened: stdout
            _silence_stdout()
        return _of_the_system(error)
    fix = "--debug shows where; please report it"
    return SeqloomError("E_INTERNAL", f"{type(error).__name__}: {error}", fix=fix)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from seqloom.training.gradients import is_out_of_memory  # which knows what torch raises, and has it loaded

    return is_out_of_memory(error)


def _of_the_system(error: OSError) -> SeqloomError:
    from pathlib import Path

    from seqloom.files import file_error

    return file_error(error, Path(error.filename if isinstance(error.filename, str) else "<stdout>"), "read or write")


def _usage(error: Exception) -> SeqloomError:
    """click's complaint as ours, with the nearest command or option."""
    message = str(getattr(error, "message", "")) or str(error)
    context: typer.Context | None = getattr(error, "ctx", None)
    given = str(getattr(error, "option_name", ""))
    if message.startswith("No such command"):
        wrong = message.split("'")[1] if "'" in message else ""
        message = f"no such command: {wrong!r}{nearest(wrong, COMMANDS)}"
    elif message.startswith("No such option") and context is not None:
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("-")]
        message = f"no such option: {given}{nearest(given, known)}"
    else:
        formatted: Callable[[], str] = getattr(error, "format_message", lambda: message)
        message = formatted().replace(message, _plainly(error.__cause__, message)).strip().rstrip(".")
        message = message[:1].lower() + message[1:]
    command = context.command_path if context is not None else "seqloom"
    return SeqloomError("E_USAGE", message, fix=f"'{command} --help' shows how")


def _plainly(cause: BaseException | None, message: str) -> str:
    """What is wrong with a value, in our words where typer asked pydantic."""
    from pydantic import ValidationError

    from seqloom.wording import problem

    return problem(cause.errors(include_url=False)[0]) if isinstance(cause, ValidationError) else message


def _silence_stdout() -> None:
    """Keep the interpreter's last flush from complaining about the closed pipe or the full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
