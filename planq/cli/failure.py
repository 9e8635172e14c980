"""Exit statuses, and the errors that a command reports in one line."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXIT_OK = 0
EXIT_MARKED = 1
EXIT_FAILED = 2
EXIT_UNREPORTED = 3

# What a command line has to show for itself, whatever happens to it afterwards.
_written: ContextVar[list[Path]] = ContextVar("written")


@contextmanager
def outputs() -> Iterator[list[Path]]:
    """Yields the list to which `note_output` adds while one command line runs."""
    token = _written.set([])
    try:
        yield _written.get()
    finally:
        _written.reset(token)


def note_output(path: Path) -> None:
    """Notes that an output is complete and has its name: from now on, nothing was not written."""
    _written.get([]).append(path)


class CommandError(Exception):
    """A failure whose message is complete: printed in one line, then exit status 2.

    The status is 3 where the output has its name already.
    """


class Interrupted(BaseException):
    """A signal asked the command to stop.

    Not an ``Exception``, so that no handler on the way takes it for a failure of its own work.
    """


def describe_os_error(error: OSError) -> str:
    """Says in one line what the system refused, and for which file."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason
