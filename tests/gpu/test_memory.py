"""`planq.memory` on a GPU: tensors far smaller than its memory, since more can hang it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.dlpack import from_dlpack

import planq
from planq import memory
from planq.memory import PagePool
from support.gpu import new_stream

SHAPE = (1000, 333)


def filled(stream: Any, tensor: memory.PagedTensor, value: float) -> None:
    """Writes on the GPU, and waits."""
    desc = planq.FillDescriptor(shape=tensor.shape, output_dtype=tensor.dtype)
    plan = planq.Plan.select(stream, desc)
    plan.run(stream, None, planq.FillArgs(output=tensor, value=value))
    torch.cuda.synchronize()


def test_both_sides_see_one_memory() -> None:
    """What a kernel writes the host reads, and the other way round."""
    stream = new_stream()
    tensor = memory.zeros(stream, SHAPE, "float32")
    theirs = from_dlpack(tensor)
    assert (theirs.device.type, theirs.data_ptr()) == ("cuda", tensor.pointer)
    torch.cuda.synchronize()
    assert not theirs.any()
    filled(stream, tensor, 2.5)
    host = np.from_dlpack(tensor.on_host())
    assert (host == 2.5).all()
    host[3] = -1
    assert theirs[3].eq(-1).all()
    assert theirs[4].eq(2.5).all()


@pytest.mark.parametrize("to", ["device", "host"])
def test_what_is_fetched_keeps_its_values(to: str) -> None:
    """In the order of the stream."""
    stream = new_stream()
    tensor = memory.empty(stream, SHAPE, "float32")
    tensor.prefetch(stream)
    filled(stream, tensor, 7)
    tensor.prefetch(stream, to)
    torch.cuda.synchronize()
    assert (np.from_dlpack(tensor.on_host()) == 7).all()


def test_advice_is_taken() -> None:
    """As cuda.core answers it."""
    stream = new_stream()
    tensor = memory.empty(stream, SHAPE, "float32")
    tensor.advise(read_mostly=True, preferred="host", mapped=True)
    buffer = getattr(tensor._memory, "_buffer")  # noqa: B009
    assert buffer.read_mostly
    assert buffer.preferred_location is not None
    assert len(buffer.accessed_by) == 1
    tensor.advise(read_mostly=False, mapped=False)
    assert not buffer.read_mostly
    assert len(buffer.accessed_by) == 0


def test_a_pool_of_states() -> None:
    """Three tensors, one of which is dropped before all are fetched."""
    stream, pool = new_stream(), PagePool(smallest=1000)
    states = [pool.zeros(stream, SHAPE, dtype) for dtype in ("float32", "uint8", "float32")]
    del states[1]
    gc.collect()
    assert len(pool) == 2
    pool.prefetch_all(stream, "host")
    pool.prefetch_all(stream)
    for value, state in enumerate(states):
        filled(stream, state, float(value))
        assert (np.from_dlpack(state.on_host()) == value).all()


def test_memory_is_given_back() -> None:
    """A hundred times 64 MB, one after another."""
    stream = new_stream()
    for _ in range(100):
        tensor = memory.empty(stream, (2**24,), "float32")
        filled(stream, tensor, 1)
        del tensor


def test_the_current_device_stays() -> None:
    """Whatever device the memory is for."""
    before = torch.cuda.current_device()
    memory.empty(new_stream(), (3,), "int8")
    assert torch.cuda.current_device() == before
