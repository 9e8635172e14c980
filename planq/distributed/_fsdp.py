"""The reduce-scatter of FSDP2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from planq.distributed._checks import Op
from planq.distributed._codes import Codes, Options
from planq.distributed._collectives import quantized_reduce_scatter
from planq.distributed._levels import Group, Levels
from planq.errors import ArgumentError


class QuantizedReduceScatter:
    """What ``FSDPModule.set_custom_reduce_scatter`` takes, so that gradients are sent as codes.

    Args:
        mesh: A DeviceMesh of two dimensions with the ranks that FSDP shards over, in their order,
            for two levels; None for one level, the group that FSDP gives.
        **options: How gradients become codes: :class:`Options`.

    Raises:
        ArgumentError: ``mesh`` is no such mesh.
        DescriptorError: An option has a value that is not allowed.
    """

    def __init__(self, mesh: DeviceMesh | None = None, **options: Unpack[Options]) -> None:
        Codes.of(options)
        if mesh is not None:
            Levels.of(mesh)
        self._mesh, self._options = mesh, options

    def allocate(
        self,
        size: Sequence[int | torch.SymInt],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> torch.Tensor:
        """Allocates a tensor for FSDP's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Op,
        async_op: bool = False,
    ) -> None:
        """Writes this rank's part of the sum or of the mean, on the current stream.

        Raises:
            ArgumentError: The operation is neither SUM nor AVG. ``set_gradient_divide_factor``
                makes such an operation; ``set_force_sum_reduction_for_comms(True)`` avoids it. Or
                the mesh has other ranks than the group, or ``async_op`` is True.
        """
        if async_op:
            raise ArgumentError("async_op", "False", "True", "it runs on the current stream")
        quantized_reduce_scatter(
            input_tensor, group=self._levels(group), op=op, out=output_tensor, **self._options
        )

    def _levels(self, group: dist.ProcessGroup) -> Group:
        """The mesh, whose ranks have to be those of the group; without a mesh, the group."""
        if self._mesh is None:
            return group
        wanted, given = dist.get_process_group_ranks(group), self._mesh.mesh.flatten().tolist()
        if given != wanted:
            raise ArgumentError("mesh", f"FSDP's ranks {wanted}", str(given))
        return self._mesh
