"""The memory of a call: areas of the caller's workspace, or of torch's allocator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch

from planq import _core
from planq.arena import aligned
from planq.distributed._checks import has_memory
from planq.errors import WorkspaceError

_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT


class Room(NamedTuple):
    """The memory areas of a call, as uint8 tensors.

    Attributes:
        sent: Messages that this rank sends, or gathers.
        received: Messages from other ranks.
        rows: Copies of the tensors as rows; None if they are used directly.
        flat: Codes and parameters of all rows, in the order of the elements; None unless they are
            made in one launch.
    """

    sent: torch.Tensor
    received: torch.Tensor
    rows: torch.Tensor | None
    flat: torch.Tensor | None


class Sizes(NamedTuple):
    """Bytes of the areas of a :class:`Room`; 0 for an area that does not exist."""

    sent: int
    received: int
    rows: int
    flat: int

    @property
    def total(self) -> int:
        """Bytes of a workspace that holds all areas."""
        return sum(map(aligned, self))

    def allocated(self, like: torch.Tensor, messages: tuple[int, ...]) -> Room:
        """Areas from torch's allocator, on the device of ``like``.

        ``messages`` is the shape of the areas of messages.
        """
        sent = like.new_empty(messages, dtype=torch.uint8)
        received = torch.empty_like(sent)
        if not self.rows and not self.flat:
            return Room(sent, received, None, None)
        rows, flat = (
            like.new_empty((size,), dtype=torch.uint8) if size else None
            for size in (self.rows, self.flat)
        )
        return Room(sent, received, rows, flat)

    def cut(self, workspace: torch.Tensor, messages: tuple[int, ...]) -> Room:
        """Areas in a workspace, one after another."""
        strides = (messages[1], 1) if len(messages) == 2 else (1,)
        first, second, third, fourth = self._firsts(int(workspace.storage_offset()))
        return Room(
            workspace.as_strided(messages, strides, first),
            workspace.as_strided(messages, strides, second),
            workspace.as_strided((self.rows,), (1,), third) if self.rows else None,
            workspace.as_strided((self.flat,), (1,), fourth) if self.flat else None,
        )

    def _firsts(self, first: int) -> Iterator[int]:
        for size in self:
            yield first
            first += aligned(size)

    def check(self, workspace: torch.Tensor, device: torch.device) -> None:
        """Checks a caller's workspace.

        Raises:
            WorkspaceError: It is no contiguous uint8 tensor of one axis, is on another device, too
                small, without memory of its own, or misaligned.
        """
        problem = ""
        if workspace.dtype != torch.uint8 or workspace.dim() != 1 or not workspace.is_contiguous():
            problem = "it is no contiguous torch.uint8 tensor of one axis"
        elif workspace.device != device:
            problem = f"the tensors are on {device}"
        elif workspace.numel() < self.total:
            problem = "it is too small"
        elif not has_memory(workspace):
            problem = f"a {type(workspace).__name__} has no memory of its own"
        elif workspace.data_ptr() % _ALIGNMENT != 0:
            problem = "it is not aligned"
        if problem:
            got = workspace.numel() * workspace.itemsize
            raise WorkspaceError(self.total, got, _ALIGNMENT, problem)


def view_of(area: torch.Tensor, offset: int, rows: int, size: int) -> torch.Tensor:
    """A view of ``rows`` messages of ``size`` bytes in an area; the area itself if it is that."""
    if area.shape == (rows, size):
        return area
    return area.as_strided((rows, size), (size, 1), area.storage_offset() + offset)
