"""The ranks that take part: those of a group, or of a mesh of nodes and their devices."""

from __future__ import annotations

from typing import TypeAlias

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from planq.errors import ArgumentError, shown

Group: TypeAlias = "dist.ProcessGroup | DeviceMesh | None"


class Levels:
    """Ranks in one level, or in two.

    Attributes:
        devices: This rank's process group of the first level: the devices of its node.
        nodes: Its group of the second level: the same device of all nodes; None with one level.
        device_count: Ranks of the first level.
        node_count: Ranks of the second level; 1 without it.
        device: This rank's number in the first level.
        node: Its number in the second level; 0 without it.
        ranks: The number of all ranks.
        rank: This rank's number among all: ``node * device_count + device``.
    """

    __slots__ = (
        "device",
        "device_count",
        "devices",
        "node",
        "node_count",
        "nodes",
        "rank",
        "ranks",
    )

    def __init__(self, devices: dist.ProcessGroup, nodes: dist.ProcessGroup | None) -> None:
        self.devices, self.nodes = devices, nodes
        self.device_count = self.ranks = devices.size()
        self.device = self.rank = devices.rank()
        self.node_count, self.node = 1, 0
        if nodes is not None:
            self.node_count, self.node = nodes.size(), nodes.rank()
            self.ranks *= self.node_count
            self.rank += self.node * self.device_count

    @staticmethod
    def of(group: Group) -> Levels:
        """The levels of a process group, or of a mesh of one or two dimensions.

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
            group = dist.group.WORLD
            if group is None:
                raise _error("none, and torch.distributed is not initialized")
        if not isinstance(group, dist.ProcessGroup):
            raise _error(shown(group))
        return Levels(group, None)


def _error(actual: str) -> ArgumentError:
    expected = "a ProcessGroup or a DeviceMesh of 1 or 2 dimensions, with this process in it"
    return ArgumentError("group", expected, actual)
