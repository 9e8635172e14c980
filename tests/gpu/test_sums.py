"""`square_sum` and `norm` on tensors that the generated tests are too small for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ops.statistics import sums
from ops.statistics.norm.adapter import descriptor
from ops.statistics.sums import Problem
from ops.statistics.sums_tests import run_on_torch
from reference import inputs
from reference.formats import bits
from support.gpu import on_gpu


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
