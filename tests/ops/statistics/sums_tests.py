"""What the adapters of operators that sum all elements share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

import planq
from ops.statistics.sums import Problem
from reference.formats import Array
from support.memory import Device, Host, Layout
from support.runner import Bench

HOST_DEVICE = Host()


def as_problem(problem: Hashable) -> Problem:
    """A problem of these operators."""
    assert isinstance(problem, Problem)
    return problem


class SumTests:
    """Everything but the cases and the descriptor of an operator."""

    def of(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        raise NotImplementedError

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return self.of(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """The compute type's."""
        wide = as_problem(problem).input_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Every operation to nearest."""
        assert isinstance(problem, Problem)
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """Whether the elements are whole vectors."""
        return as_problem(problem).variety


def measure(
    desc: planq.Descriptor, x: Array, device: Device = HOST_DEVICE, layout: Layout | None = None
) -> Array:
    """The number that is measured of `x`, which lies as told."""
    bench = Bench(device, desc, layouts={"input": layout} if layout else None)
    bench.load({"input": x})
    bench.run()
    return bench.outputs()["output"]


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
