"""The memory of a call: areas of the caller's workspace, or of torch's allocator."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch

from planq import _core
from planq.errors import WorkspaceError

_ALIGNMENT: Final = _core.WORKSPACE_ALIGNMENT


class Room(NamedTuple):
    """Bytes of a call.

    Attributes:
        sent: Messages that this rank sends; what it gathers.
        received: Those of others.
        rows: The tensors of the call row by row; None where they are that already.
        flat: Codes and parameters in the order of the elements, where they are made in bulk.
    """

    sent: torch.Tensor
    received: torch.Tensor
    rows: torch.Tensor | None
    flat: torch.Tensor | None


class Sizes(NamedTuple):
    """Bytes of the areas of a :class:`Room`; 0: there is none."""

    sent: int
    received: int
    rows: int
    flat: int

    @property
    def total(self) -> int:
        """Bytes of a workspace."""
        return sum(map(_aligned, self))

    def allocated(self, like: torch.Tensor, messages: tuple[int, ...]) -> Room:
        """Of torch's allocator, on the device of a tensor; ``messages`` is the shape to send."""
        rows, flat = self.rows, self.flat
        return Room(
            like.new_empty(messages, dtype=torch.uint8),
            like.new_empty(messages, dtype=torch.uint8),
            like.new_empty((rows,), dtype=torch.uint8) if rows else None,
            like.new_empty((flat,), dtype=torch.uint8) if flat else None,
        )

    def cut(self, workspace: torch.Tensor) -> Room:
        """Of a workspace, one behind the other."""
        first, areas = 0, []
        for size in self:
            areas.append(workspace[first : first + size])
            first += _aligned(size)
        sent, received, rows, flat = areas
        return Room(sent, received, rows if self.rows else None, flat if self.flat else None)

    def check(self, workspace: torch.Tensor, device: torch.device) -> None:
        """Whether a caller's workspace will do.

        Raises:
            WorkspaceError: It does not.
        """
        faults = {
            "it is no contiguous torch.uint8 tensor of one axis": workspace.dtype != torch.uint8
            or workspace.dim() != 1
            or not workspace.is_contiguous(),
            f"the tensors are on {device}": workspace.device != device,
            "it is too small": workspace.numel() < self.total,
            "it is not aligned": workspace.data_ptr() % _ALIGNMENT != 0,
        }
        problem = next((fault for fault, is_so in faults.items() if is_so), None)
        if problem is not None:
            got = workspace.numel() * workspace.itemsize
            raise WorkspaceError(self.total, got, _ALIGNMENT, problem)


def view_of(area: torch.Tensor, offset: int, rows: int, size: int) -> torch.Tensor:
    """Messages of some bytes each in an area; the area itself where it is just that."""
    if area.shape == (rows, size):
        return area
    return area.as_strided((rows, size), (size, 1), area.storage_offset() + offset)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
