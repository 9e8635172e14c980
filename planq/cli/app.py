"""The command tree, and the one place where errors become a line and an exit status."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

import planq
from planq._nearest import did_you_mean
from planq.checkpoint.failure import CheckpointError, outputs
from planq.cli.audit import audit
from planq.cli.dequantize import dequantize
from planq.cli.explain import explain
from planq.cli.failure import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNREPORTED,
    CommandError,
    Interrupted,
    describe_os_error,
)
from planq.cli.info import info
from planq.cli.inspect import inspect
from planq.cli.layers import layers
from planq.cli.ops import ops
from planq.cli.plan import plan
from planq.cli.quantize import quantize
from planq.cli.replay import replay
from planq.cli.run import run_model
from planq.cli.scale import scale
from planq.cli.verify import verify
from planq.cli.words import discard, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

_LOGGER = logging.getLogger("planq.cli")
_NOBODY_READS = os.strerror(errno.EPIPE)
_NOT_ONE_OF = re.compile("'([^']*)' is not one of (.*)")
_QUOTED = re.compile("'([^']*)'")
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(
    name="planq",
    help="Quantization operators that say what they will do before they do it.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(planq.build_info().version)
        raise typer.Exit(EXIT_OK)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Quantization operators that say what they will do before they do it."""


app.add_typer(plan, name="plan")
for _command in (
    *(quantize, scale, verify, dequantize, inspect, layers),
    *(info, ops, explain, audit, replay),
):
    app.command()(_command)
app.command("run")(run_model)


def run(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit status; never raises and never exits."""
    with outputs() as written:
        status, message = _run(list(argv))
    if message is None:
        return status
    if sys.stdout is not None and (message == _NOBODY_READS or not _flushed(sys.stdout)):
        discard(sys.stdout)
    if written:
        complete = ", ".join(str(path) for path in written)
        say("warning", f"{complete} is complete, but its report could not be printed: {message}")
        return EXIT_UNREPORTED
    if message != _NOBODY_READS:  # a closed pipe is no error worth a message
        say("error", message)
    return EXIT_FAILED


def _run(arguments: list[str]) -> tuple[int, str | None]:
    """Runs one command line: its status, or what stopped it."""
    try:
        with _stoppable():
            _check_text(arguments)
            if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may not be encodable
                sys.stdout.reconfigure(errors="backslashreplace")
            status = app(args=arguments or ["--help"], prog_name="planq", standalone_mode=False)
            if sys.stdout is None or sys.stdout.closed:
                raise CommandError("stdout is closed")
            sys.stdout.flush()
        return (int(status or 0) if arguments else EXIT_FAILED), None
    except BrokenPipeError:
        return EXIT_FAILED, _NOBODY_READS
    except SystemExit as end:  # shell completion exits with 0; Typer turns EPIPE into another code
        return (EXIT_OK, None) if end.code in (None, 0) else (EXIT_FAILED, _NOBODY_READS)
    except Interrupted:
        return EXIT_FAILED, "interrupted"
    except Exception as error:
        _LOGGER.debug("command failed", exc_info=True)
        return EXIT_FAILED, _describe(error)


def _flushed(stream: TextIO) -> bool:
    """Whether a stream could be flushed."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _check_text(arguments: list[str]) -> None:
    """Refuses arguments that no process can get from the system, so that cannot name files."""
    for argument in arguments:
        try:
            text = os.fsencode(argument)
        except UnicodeEncodeError as error:
            raise CommandError(f"an argument is no text: {argument!r}") from error
        if b"\0" in text:
            raise CommandError(f"an argument holds a NUL: {argument!r}")


def _describe(error: Exception) -> str:
    """One line for any exception that leaves a command."""
    usage = getattr(error, "format_message", None)
    if callable(usage):
        return _usage(" ".join(str(usage()).split()))
    if isinstance(error, OSError):
        return describe_os_error(error)
    if isinstance(error, (CommandError, CheckpointError)):
        return str(error)
    if isinstance(error, planq.PlanqError):  # its first line: a table may follow
        return (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"internal error, please report it: {type(error).__name__}: {error}".splitlines()[0]


def _usage(message: str) -> str:
    """A usage error, with a suggestion where a value is near a known one."""
    told = message.replace(" Value error,", "")
    wrong = _NOT_ONE_OF.search(told)
    if wrong is None:
        return told
    return told.removesuffix(".") + did_you_mean(wrong[1], _QUOTED.findall(wrong[2]))


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turns the signals that ask a program to stop into `Interrupted` while a command runs.

    A signal that the caller had ignored, as nohup does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in _STOPPED_BY}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    try:
        for number in heeded:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)
