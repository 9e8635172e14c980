"""Exit statuses, and the errors that a command reports in one line."""

from __future__ import annotations

EXIT_OK = 0
EXIT_MARKED = 1
EXIT_FAILED = 2
EXIT_UNREPORTED = 3


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
