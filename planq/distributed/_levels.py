"""Who takes part: the ranks of a group, or of a mesh of nodes and their devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from planq.errors import ArgumentError, shown

Group: TypeAlias = "dist.ProcessGroup | DeviceMesh | None"


@dataclass(frozen=True, slots=True)
class Levels:
    """Ranks in one level, or in two.

    Attributes:
        devices: This rank's group of the first level.
        nodes: Of the second; None: there is none.
    """

    devices: dist.ProcessGroup
    nodes: dist.ProcessGroup | None

    @staticmethod
    def of(group: Group) -> Levels:
        """Those of a process group, or of a mesh of one or two dimensions.

        Raises:
            ArgumentError: It is something else, or this process is not in it.
        """
        if isinstance(group, DeviceMesh):
            if group.ndim > 2:
                raise _error(f"a mesh of {group.ndim} dimensions")
            if group.get_coordinate() is None:
                raise _error("a mesh without it")
            groups = [group.get_group(axis) for axis in range(group.ndim)]
            several = [each for each in groups if each.size() > 1] or groups[:1]
            return Levels(several[-1], several[0] if len(several) == 2 else None)
        if group is None:
            if not dist.is_initialized():
                raise _error("none, and torch.distributed is not initialized")
            group = dist.group.WORLD
        if not isinstance(group, dist.ProcessGroup):
            raise _error(shown(group))
        return Levels(group, None)

    @property
    def device_count(self) -> int:
        """Ranks of the first level."""
        return self.devices.size()

    @property
    def node_count(self) -> int:
        """Of the second."""
        return 1 if self.nodes is None else self.nodes.size()

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.node_count * self.device_count

    @property
    def rank(self) -> int:
        """This one: nodes count first."""
        node = 0 if self.nodes is None else self.nodes.rank()
        return node * self.device_count + self.devices.rank()


def _error(actual: str) -> ArgumentError:
    expected = "a ProcessGroup or a DeviceMesh of 1 or 2 dimensions, with this process in it"
    return ArgumentError("group", expected, actual)
