"""From the reference's plain values of `min_max` to the library."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

import planq
from planq.audit.from_reference import scope
from planq.audit.memory import Device, Host
from planq.audit.ops.affine.min_max.cases import Case, empty_cases, sampled_cases
from planq.audit.ops.affine.min_max.reference import Problem, min_max
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

HOST_DEVICE = Host()


@cache
def descriptor(problem: Problem) -> planq.MinMaxDescriptor:
    """The problem as a descriptor."""
    return planq.MinMaxDescriptor(
        shape=problem.shape,
        input_dtype=problem.input_dtype,
        scope=scope(problem.scope),
        mode=planq.Mode(problem.mode),
        nonfinite=planq.NonFinite(problem.nonfinite),
        update=problem.update,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class MinMaxTests:
    """`min_max` against its NumPy reference."""

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
        """The mode, and whether what a kernel reads in one go is whole vectors."""
        fields = as_problem(problem)
        whole = run_length(fields) % VECTOR[fields.input_dtype] == 0
        return f"{fields.mode}, {'whole vectors' if whole else 'edges'}"


def run_length(problem: Problem) -> int:
    """Consecutive elements of a segment, or of a row where segments are columns."""
    kind, shape = problem.scope[0], problem.shape
    if kind == "tensor":
        return math.prod(shape)
    if kind == "channel" and problem.scope[1] % len(shape) < len(shape) - 1:
        return math.prod(shape[problem.scope[1] % len(shape) + 1 :])
    size = problem.sizes[-1]
    return shape[-1] if size in (None, 1) else math.gcd(min(size or 1, shape[-1]), shape[-1])


TESTS = MinMaxTests()


def measure(
    problem: Problem, operands: dict[str, Array], device: Device = HOST_DEVICE, pref: Any = None
) -> dict[str, Array]:
    """Measures `operands` and returns the results."""
    bench = Bench(device, descriptor(problem), pref=pref)
    bench.load(operands)
    bench.run()
    return bench.outputs()


def check_problem(
    problem: Problem, operands: dict[str, Array], device: Device = HOST_DEVICE
) -> None:
    """Measures `operands` and compares every byte with the reference."""
    bench = Bench(device, descriptor(problem))
    bench.load(operands)
    bench.run()
    bench.check(operands, min_max(problem, operands), f"{bench.plan.sku} on {problem.id}")
