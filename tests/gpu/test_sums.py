"""`square_sum` and `norm` on tensors that the generated tests are too small for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.statistics import sums
from planq.audit.ops.statistics.norm.adapter import descriptor
from planq.audit.ops.statistics.sums import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, bits
from support.gpu import on_gpu


def run_on_torch(desc: Any, x: torch.Tensor) -> Array:
    """The number that is measured of a tensor on a GPU, which lies as it lies."""
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, desc)
    workspace = torch.full((plan.workspace_size(),), 0xA5, dtype=torch.uint8, device=x.device)
    outputs = plan.empty_outputs(torch, device=x.device)
    args = {info.name: info.args for info in planq.operators()}[desc.operator]
    plan.run(stream, workspace if workspace.numel() else None, args(input=x, **outputs))
    found: Array = outputs["output"].cpu().numpy()
    return found


@pytest.mark.parametrize("p", ["one", "two", "infinity"])
@pytest.mark.parametrize("count", [2**25, 2**25 + 5])
def test_tiles_of_several_rounds(count: int, p: str) -> None:
    """Where a GPU has enough to do, its blocks measure four times as many elements."""
    problem = Problem((count,), "float32", p)
    x = inputs.make("tiled", problem.shape, problem.input_dtype, 3)
    found = run_on_torch(descriptor(problem), on_gpu(x))
    assert bits(found) == bits(sums.norm(problem, x))


@pytest.mark.parametrize("rows", [2**11, 2**11 + 3])
def test_more_tiles_than_a_block_joins_at_a_time(rows: int) -> None:
    """One row of 2^20 elements, read over and over: each is a part of the tree."""
    row = inputs.make("normal", (2**20,), "bfloat16", 1)
    own = sums.norm(Problem(row.shape, "bfloat16", "one"), row)
    problem = Problem((rows, *row.shape), "bfloat16", "one")
    found = run_on_torch(descriptor(problem), on_gpu(row).expand(problem.shape))
    assert bits(found) == bits(sums.as_stored(sums.tree_sum(np.repeat(own, rows))))


def test_an_address_between_vectors() -> None:
    """Has the bits of one that vectors begin at."""
    x = torch.randn(2**24 + 9, device="cuda:0")
    problem = Problem((2**24 + 8,), "float32", "two")
    apart, aligned = x[1:], x[1:].clone()
    found = [run_on_torch(descriptor(problem), each) for each in (apart, aligned)]
    assert bits(found[0]) == bits(found[1])
