"""planq.distributed on a GPU: one rank with NCCL, and several that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.multi_threaded_pg import (
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

import planq.distributed as pd
from collectives import jobs
from collectives.formulas import Problem
from reference.formats import Array
from support.gpu import new_stream

DEVICE = "cuda:0"
RANKS = 3


@pytest.fixture
def nccl() -> Iterator[None]:
    """A group whose only rank is this process."""
    device = torch.device(DEVICE)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_bits_of_one_rank_are_those_of_the_formulas(nccl: None, dtype: str) -> None:
    """On a stream that is not the default one, right after work that is still going on."""
    problem = Problem(shape=(999, 700), levels=(1,), input_dtype="bfloat16", dtype=dtype)
    [given] = problem.inputs(1)
    x = jobs.tensor(given).to(DEVICE)
    stream: Any = new_stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x.clone()
        whole = pd.quantized_all_reduce(late, **problem.options)
        part = pd.quantized_reduce_scatter(late, **problem.options)
        found = pd.quantized_all_gather(late, out=torch.empty_like(late), **problem.options)
    torch.cuda.synchronize()
    assert jobs.bits(whole.cpu()) == problem.all_reduce([given]).tobytes()
    assert jobs.bits(part.cpu()) == problem.reduce_scatter([given])[0].tobytes()
    assert jobs.bits(found.cpu()) == problem.all_gather(given).tobytes()


def test_the_hook_gives_the_bits_of_the_host(nccl: None) -> None:
    """Two steps of DDP with error feedback: gradients of the second, and errors."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(300, 500, bias=False)
    inputs = [torch.randn(8, 300), torch.randn(8, 300)]
    options: dict[str, Any] = {"error_feedback": True, "beta": 0.25, "dtype": "int4"}
    model = DistributedDataParallel(layer.to(DEVICE), device_ids=[0])
    plain = torch.nn.Linear(300, 500, bias=False, device=DEVICE)
    state = pd.QuantizedAllReduceState(model, **options)
    model.register_comm_hook(state, pd.quantized_all_reduce_hook)
    errors = np.zeros((500, 300), np.float32)
    problem = Problem(shape=(500, 300), levels=(1,), dtype="int4", mean=True)
    for x in inputs:
        for each in (model, plain):
            each.zero_grad()
            each(x.to(DEVICE)).sum().backward()
        gradient = _grad(plain)
        h = gradient + errors
        assert _grad(model).tobytes() == problem.all_reduce([h]).tobytes()
        lost = h - problem.all_gather(h)
        errors = np.float32(0.25) * errors + np.float32(0.75) * lost
        assert state.errors["weight"].cpu().numpy().tobytes() == errors.tobytes()


def _grad(model: Any) -> Array:
    [parameter] = model.parameters()
    found: Array = parameter.grad.cpu().numpy()
    return found


def together(ranks: int, work: Callable[[int], Any]) -> list[Any]:
    """What threads return that are ranks of one group, which ends with them.

    Not every release of torch can destroy such a group.
    """
    world, store = _install_threaded_pg(), dist.HashStore()
    found: list[Any] = [None] * ranks
    torch._C._distributed_c10d._set_thread_isolation_mode(True)

    def run(rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=ranks, store=store)
        try:
            found[rank] = work(rank)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        _uninstall_threaded_pg()
    assert world is not None
    return found


@pytest.mark.parametrize(
    "problem",
    [
        Problem(shape=(3, 512), levels=(RANKS,)),
        Problem(shape=(1001, 37), levels=(RANKS,), input_dtype="float16", dtype="int4", mean=True),
        Problem(shape=(5000,), levels=(RANKS,), input_dtype="bfloat16", mode="asymmetric"),
    ],
    ids=str,
)
def test_bits_of_threads_are_those_of_the_formulas(problem: Problem) -> None:
    """Kernels and copies of several ranks on one GPU, without NCCL between them."""
    given = problem.inputs(2)
    op = dist.ReduceOp.AVG if problem.mean else dist.ReduceOp.SUM

    def work(rank: int) -> tuple[bytes, bytes]:
        x = jobs.tensor(given[rank]).to(DEVICE)
        part = pd.quantized_reduce_scatter(x, op=op, **problem.options)
        whole = pd.quantized_all_reduce(x, op=op, **problem.options)
        return jobs.bits(part.cpu()), jobs.bits(whole.cpu())

    whole = problem.all_reduce(given).tobytes()
    parts = [each.tobytes() for each in problem.reduce_scatter(given)]
    assert together(RANKS, work) == [(part, whole) for part in parts]
