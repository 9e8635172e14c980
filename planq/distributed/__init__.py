"""Collectives of torch.distributed that send codes of 8 or 4 bits.

Import this module, and call them with an initialized process group, gloo or NCCL::

    import planq.distributed

    total = planq.distributed.quantized_all_reduce(gradient)
    totals = planq.distributed.quantized_all_reduce([g.grad for g in parameters], dtype="int4")

planq has no transport of its own. Plans of ``group_quantize``, ``swizzled_quantize``,
``dequantize_reduce`` and ``group_dequantize`` make and read the bytes, and torch's
``all_to_all_single`` and all-gather move them. docs/distributed.md has the algorithm, byte by byte.

Bits:
    Plans give the same bits on the host and on every GPU. Sums are float32, in the order of the
    ranks, whatever arrives first. All ranks get the same bits, in every run. A tensor in a list
    gets the bits that it gets alone. Another number of ranks gives other bits.

Levels:
    A process group is one level: codes are exchanged and summed in float32. A DeviceMesh of two
    dimensions is two levels: codes are exchanged and summed among the devices of a node, and the
    sums are quantized again, exchanged and summed among the nodes. The second level rounds once
    more, and so gives other bits than one level.

DistributedDataParallel:
    It takes a hook, with error feedback if wanted::

        state = planq.distributed.QuantizedAllReduceState(model)
        model.register_comm_hook(state, planq.distributed.quantized_all_reduce_hook)

FSDP2:
    Each sharded module takes an object::

        module.set_custom_reduce_scatter(planq.distributed.QuantizedReduceScatter())

Streams and memory:
    Work runs on torch's current stream. Memory comes from torch's allocator, or is given as
    ``workspace=``. Nothing waits for a device. So a CUDA graph can capture a call, if one like it
    ran before. The first call with given sizes, options and ranks prepares what later ones reuse.
    :func:`bind` also checks the tensors once, for calls whose tensors stay at their addresses.
"""

from __future__ import annotations

from planq.distributed._codes import Options
from planq.distributed._collectives import (
    BoundCollective,
    bind,
    quantized_all_gather,
    quantized_all_reduce,
    quantized_reduce_scatter,
    workspace_size,
)
from planq.distributed._ddp import QuantizedAllReduceState, quantized_all_reduce_hook
from planq.distributed._fsdp import QuantizedReduceScatter

__all__ = [
    "BoundCollective",
    "Options",
    "QuantizedAllReduceState",
    "QuantizedReduceScatter",
    "bind",
    "quantized_all_gather",
    "quantized_all_reduce",
    "quantized_all_reduce_hook",
    "quantized_reduce_scatter",
    "workspace_size",
]
