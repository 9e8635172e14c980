"""Attention as torch has it: its own kernels of FlashAttention, and those of cuDNN.

They take keys and values without pages. So the pages of a case, one behind another, are the keys of
its sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from harness.core.workload import Launch, Machine, Operands, Workload
from harness.peers.peer import Peer, first_result


def of_sequences(desc: Any, given: Operands) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values as (sequences, heads, tokens, columns), where they lie."""
    query = given["query"].unflatten(0, (desc.batch, -1))
    caches = (given[name] for name in ("key_cache", "value_cache"))
    rows = (cache.flatten(0, 1) for cache in caches)
    own = (each[: desc.batch * desc.max_key].unflatten(0, (desc.batch, -1)) for each in rows)
    return tuple(each.transpose(1, 2) for each in (query, *own))


def attend(
    desc: Any, backend: SDPBackend, parts: tuple[torch.Tensor, ...], scale: float
) -> torch.Tensor:
    """One call of torch's, by one of its kernels."""
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            *parts, is_causal=desc.causal, scale=scale, enable_gqa=True
        )


def of_torch(name: str, backend: SDPBackend, machine: Machine, workload: Workload) -> Peer | None:
    """A peer where torch has such a kernel: causal prompts are whole, numbers are of 16 bits.

    Bits differ: probabilities are rounded elsewhere, and sums have another order.
    """
    desc = workload.case.descriptor
    tokens = desc.query_shape[0]
    whole = not desc.causal or tokens == desc.batch * desc.max_key
    plain = desc.cache_dtype is desc.input_dtype and desc.layout.value == "nhd"
    if not (torch.cuda.is_available() and whole and plain):
        return None
    sets = [(of_sequences(desc, one), one["scale"]) for one in workload.sets]
    launches: list[Launch] = [partial(attend, desc, backend, *one) for one in sets]
    theirs = first_result(lambda: attend(desc, backend, *sets[0]), capturable=True)
    workload.launches[0]()
    ours = workload.sets[0]["output"].unflatten(0, (desc.batch, -1)).transpose(1, 2)
    return Peer(name, launches, differing=(theirs != ours).float().mean().item())


MAKERS: Final[dict[str, Callable[[Machine, Workload], Peer | None]]] = {
    "torch_flash": partial(of_torch, "torch_flash", SDPBackend.FLASH_ATTENTION),
    "torch_cudnn": partial(of_torch, "torch_cudnn", SDPBackend.CUDNN_ATTENTION),
}
