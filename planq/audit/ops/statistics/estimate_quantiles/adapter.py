"""From the reference's plain values of `estimate_quantiles` to the library."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache

import planq
from planq.audit.memory import Device, Host, Layout
from planq.audit.ops.statistics.estimate_quantiles.cases import Case, empty_cases, sampled_cases
from planq.audit.ops.statistics.estimate_quantiles.reference import Problem, estimate_quantiles
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

HOST_DEVICE = Host()


@cache
def descriptor(problem: Problem) -> planq.EstimateQuantilesDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.EstimateQuantilesDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class EstimateQuantilesTests:
    """`estimate_quantiles` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Nothing is computed."""
        assert isinstance(problem, Problem)
        return planq.MathPrecision.NONE

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nothing is rounded."""
        assert isinstance(problem, Problem)
        return planq.Rounding.NONE

    def variety(self, problem: Hashable) -> str:
        """Whether the elements are whole vectors."""
        fields = as_problem(problem)
        whole = math.prod(fields.shape) % VECTOR[fields.input_dtype] == 0
        return "whole vectors" if whole else "edges"


TESTS = EstimateQuantilesTests()


def measure(problem: Problem, x: Array, device: Device = HOST_DEVICE) -> Array:
    """The quantiles of `x`."""
    bench = Bench(device, descriptor(problem))
    bench.load({"input": x})
    bench.run()
    return bench.outputs()["output"]


def check_problem(
    problem: Problem, x: Array, device: Device = HOST_DEVICE, layout: Layout | None = None
) -> None:
    """Measures `x` and compares every byte with the reference."""
    layouts = {"input": layout} if layout else None
    bench = Bench(device, descriptor(problem), layouts=layouts)
    bench.load({"input": x})
    bench.run()
    wanted = {"output": estimate_quantiles(problem, x)}
    bench.check({"input": x}, wanted, f"{bench.plan.sku} on {problem.id}")
