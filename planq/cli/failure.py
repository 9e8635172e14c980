"""Exit statuses, and the errors that a command reports in one line."""

from __future__ import annotations

EXIT_OK = 0
EXIT_MARKED = 1
EXIT_FAILED = 2
EXIT_UNREPORTED = 3


class CommandError(Exception):
    """A failure whose message is printed as one line; the exit status is then 2.

    The status is 3 if the output was already complete.
    """


class Interrupted(BaseException):
    """A signal asked the command to stop.

    Not an ``Exception``, so that no ``except Exception`` on the way catches it.
    """


def describe_os_error(error: OSError) -> str:
    """Says in one line what the system refused, and for which file."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason
