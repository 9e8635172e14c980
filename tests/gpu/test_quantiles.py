"""`estimate_quantiles` on tensors that the generated tests are too small for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.statistics.estimate_quantiles.adapter import descriptor
from planq.audit.ops.statistics.estimate_quantiles.reference import Problem, estimate_quantiles

DEVICE = "cuda:0"


def run(problem: Problem, x: torch.Tensor) -> torch.Tensor:
    """The quantiles of a tensor on the GPU."""
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, descriptor(problem))
    workspace = torch.full((plan.workspace_size(),), 0xA5, dtype=torch.uint8, device=DEVICE)
    output = torch.full((problem.quantiles,), -77.0, device=DEVICE)
    plan.run(stream, workspace, planq.EstimateQuantilesArgs(input=x, output=output))
    return output.cpu()


def test_more_elements_than_32_bits_count() -> None:
    """One row, read 65,537 times: more than 2^32 elements, nearly all of them in one bucket."""
    row = torch.full((2**16,), 2.0, dtype=torch.bfloat16, device=DEVICE)
    row[:16] = 1
    shape = (2**16 + 1, 2**16)
    last_one = (16 * shape[0] - 1) / (shape[0] * shape[1] - 1)
    found = run(Problem(shape, "bfloat16", 2, last_one), row.expand(shape))
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("count", [2**25, 2**25 + 5])
def test_many_elements_of_one_value(count: int, share: float) -> None:
    """As rectified activations have them: the counts of one bucket come from every thread."""
    values = torch.randn(count, generator=torch.Generator().manual_seed(count))
    values[: int(share * count)] = 0
    problem = Problem((count,))
    wanted = estimate_quantiles(problem, values.numpy())
    assert np.array_equal(run(problem, values.to(DEVICE)).numpy(), wanted)
