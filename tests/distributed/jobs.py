"""What ranks do together. Arrays come and go as bytes with a dtype, so that bfloat16 passes."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import planq.distributed as pd
from reference.formats import Array

COLLECTIVES: dict[str, Any] = {
    "reduce_scatter": pd.quantized_reduce_scatter,
    "all_gather": pd.quantized_all_gather,
    "all_reduce": pd.quantized_all_reduce,
}


def tensor(array: Array) -> torch.Tensor:
    """The same bits, writable."""
    dtype = getattr(torch, array.dtype.name)
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.tobytes()), dtype=dtype).view(array.shape)


def bits(found: torch.Tensor) -> bytes:
    """Those of a tensor."""
    return found.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


@functools.cache
def group_of(levels: tuple[int, ...]) -> Any:
    """The first ranks, or a mesh; all ranks have to ask."""
    if len(levels) == 1:
        return dist.new_group(list(range(levels[0])))
    return init_device_mesh("cpu", levels)


def collective(
    name: str,
    levels: tuple[int, ...],
    given: Sequence[Any],
    options: dict[str, Any],
    mean: bool = False,
    outs: Any = None,
    late: Sequence[int] = (),
) -> Any:
    """What a collective gives this rank, as bits.

    ``given`` has an array, or a list of them, for each rank; ``outs`` shapes; ranks that are late
    come in the order of the list.
    """
    group = group_of(levels)
    rank = dist.get_rank()
    if not 0 <= rank < len(given):
        return None
    mine = given[rank]
    tensors = [tensor(x) for x in mine] if isinstance(mine, list) else tensor(mine)
    if rank in late:
        time.sleep(0.02 * (1 + late.index(rank)))
    if mean:
        options = options | {"op": dist.ReduceOp.AVG}
    if outs is not None:
        options = options | {"out": tensors.new_empty(outs)}
    found = COLLECTIVES[name](tensors, group=group, **options)
    return [bits(each) for each in found] if isinstance(found, list) else bits(found)


def in_place(given: Sequence[Array], options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """An all-reduce into its input, one in the caller's workspace, and one like any other."""
    x = tensor(given[dist.get_rank()])
    plain = pd.quantized_all_reduce(x, **options)
    size = pd.workspace_size("all_reduce", x, **options)
    held = torch.full((size + 256,), 171, dtype=torch.uint8)
    held = held[-held.data_ptr() % 256 :][:size]
    lent = pd.quantized_all_reduce(x, workspace=held, **options)
    assert pd.quantized_all_reduce(x, out=x, **options) is x
    return bits(plain), bits(lent), bits(x)


def messages(given: Sequence[Array], options: dict[str, Any]) -> tuple[Array, Array]:
    """The bytes that a reduce-scatter sends and receives."""
    seen: list[Array] = []
    send = dist.all_to_all_single

    def watched(received: torch.Tensor, sent: torch.Tensor, **others: Any) -> Any:
        send(received, sent, **others)
        seen.extend(each.clone().numpy() for each in (sent, received))

    dist.all_to_all_single = watched
    try:
        pd.quantized_reduce_scatter(tensor(given[dist.get_rank()]), **options)
    finally:
        dist.all_to_all_single = send
    return seen[0], seen[1]
