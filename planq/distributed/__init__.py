"""Collectives of torch.distributed that send codes of 8 or 4 bits.

Import this module, and call them on a process group that there is, gloo or NCCL::

    import planq.distributed

    total = planq.distributed.quantized_all_reduce(gradient)
    totals = planq.distributed.quantized_all_reduce([g.grad for g in parameters], dtype="int4")

planq has no transport of its own: bytes go through ``all_to_all_single`` and the all-gather of
torch, between plans of ``group_quantize``, ``swizzled_quantize``, ``dequantize_reduce`` and
``group_dequantize``. docs/distributed.md has the algorithm, byte by byte.

Bits:
    Those of the plans, which are the same on the host and on every GPU. Sums are float32, in the
    order of the ranks, whatever arrives first; all ranks have the same bits, in every run, and a
    tensor in a list has those that it has alone. Other numbers of ranks give other bits.

Levels:
    A process group is one level: codes, float32 sums. A DeviceMesh of two dimensions is two: codes
    to the devices of a node, sums, codes again to the nodes, sums. That is one more rounding, and
    other bits than those of one level.

DistributedDataParallel:
    Takes a hook, with error feedback if wanted::

        state = planq.distributed.QuantizedAllReduceState(model)
        model.register_comm_hook(state, planq.distributed.quantized_all_reduce_hook)

FSDP2:
    Takes an object, for every module that is sharded::

        module.set_custom_reduce_scatter(planq.distributed.QuantizedReduceScatter())

Streams and memory:
    torch's current stream, and its allocator, or ``workspace=``. Nothing waits for a device, so
    that a CUDA graph can hold a call after one like it. A call is prepared once for its sizes,
    options and ranks; :func:`bind` checks one once, for tensors that stay where they are.
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
