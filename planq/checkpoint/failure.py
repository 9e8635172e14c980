"""The error of checkpoints, and the list of files that are complete."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from planq.errors import PlanqError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The outputs that are complete. An error that comes later must not claim that nothing was written.
_written: ContextVar[list[Path]] = ContextVar("written")


class CheckpointError(PlanqError):
    """A file, a folder or a request cannot be worked on. The message is one complete line."""

    code = "checkpoint"


@contextmanager
def outputs() -> Iterator[list[Path]]:
    """Yields the list to which `note_output` adds while one request is worked on."""
    token = _written.set([])
    try:
        yield _written.get()
    finally:
        _written.reset(token)


def note_output(path: Path) -> None:
    """Notes that an output is complete and has its final name."""
    _written.get([]).append(path)
