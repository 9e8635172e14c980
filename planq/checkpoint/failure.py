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


class TensorError(CheckpointError):
    """A tensor of a file is not what its format has there.

    Attributes:
        tensor: Its name.
        expected: What the format has there.
        found: What the file has: a type and a shape, values, or None where there is no such tensor.
    """

    code = "checkpoint_tensor"

    def __init__(self, path: Path, tensor: str, expected: str, found: str | None) -> None:
        missing = f"{path}: no tensor {tensor!r}, expected {expected}"
        there = f"{path}: tensor {tensor!r}: expected {expected}, found {found}"
        super().__init__(missing if found is None else there)
        self.tensor = tensor
        self.expected = expected
        self.found = found


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
