"""One plan for every number of rows on a GPU: kernels at several extents, graphs, workspaces."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq
from planq.audit import dims, kernels
from planq.audit.operators import name_of
from support.gpu import Cuda

GPU = Cuda(0)
KERNELS = [
    pytest.param(
        operator,
        name_of(kernel),
        id=name_of(kernel),
        marks=pytest.mark.xdist_group(kernel.sku.rpartition("/")[2]),
    )
    for operator, kernel in kernels.kernels(planq.Backend.CUDA)
]


@pytest.mark.parametrize(("operator", "name"), KERNELS)
def test_one_plan_gives_the_bytes_of_the_plans_of_its_extents(operator: str, name: str) -> None:
    """At 0, 1, 2, 7 and the maximum, pinned and not, run and bound."""
    dims.check_dims(GPU, operator, name)


def quantize(rows: int | planq.Dim, columns: int, **fields: Any) -> planq.Descriptor:
    """A descriptor of dynamic quantization per token."""
    return planq.DynamicRangeQuantizeDescriptor(
        shape=(rows, columns), input_dtype="bfloat16", output_dtype="int8", **fields
    )


def outputs(rows: int, columns: int) -> dict[str, torch.Tensor]:
    """Where codes and scales go."""
    return {
        "output": torch.empty(rows, columns, dtype=torch.int8, device="cuda"),
        "scale": torch.empty(rows, device="cuda"),
    }


def test_one_plan_is_captured_at_several_extents() -> None:
    """Each graph replays its own extent, on new input."""
    plan = planq.Plan.select(torch.cuda.current_stream(), quantize(planq.Dim("m", 64), 4096))
    graphs = []
    for extent in (1, 7, 64):
        x = torch.zeros(extent, 4096, dtype=torch.bfloat16, device="cuda")
        made = outputs(extent, 4096)
        args = planq.DynamicRangeQuantizeArgs(input=x, **made)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(torch.cuda.current_stream(), None, args)
        graphs.append((graph, x, made))
    for graph, x, made in graphs:
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        want = outputs(*x.shape)
        fixed = planq.Plan.select(torch.cuda.current_stream(), quantize(*x.shape))
        run_args = planq.DynamicRangeQuantizeArgs(input=x, **want)
        fixed.run(torch.cuda.current_stream(), None, run_args)
        torch.cuda.synchronize()
        assert torch.equal(made["output"], want["output"])
        assert torch.equal(made["scale"], want["scale"])


@pytest.mark.parametrize("most", [132, 133, 4096])
def test_the_workspace_of_a_dim_is_enough_for_every_extent(most: int) -> None:
    """Fewer long rows may be cut into more parts than the most rows are."""
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, quantize(planq.Dim("m", most), 2**20))
    needs = {m: plan.workspace_size(m=m) for m in range(most + 1)}
    assert max(needs.values()) <= plan.workspace_size()
    for m in (1, 66, 131, 132, 133):
        if m <= most:
            fixed = planq.Plan.select(stream, quantize(m, 2**20))
            assert needs[m] == fixed.workspace_size(), m
