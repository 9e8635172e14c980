"""From the references' plain values of the codebook operators to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import planq
from reference.codebook import Problem
from reference.codebook_cases import Case, empty_cases, sampled_cases
from reference.formats import Array
from support.affine import make_descriptor
from support.memory import Device, Host
from support.runner import Bench

HOST_DEVICE = Host()
VECTOR = 8  # elements; whole vectors of 16 bytes of every type of elements


@cache
def descriptor_of(operator: str, problem: Problem) -> planq.Descriptor:
    """A problem as a descriptor: their fields have the same names."""
    return make_descriptor(operator, **asdict(problem))


@dataclass(frozen=True)
class CodebookTests:
    """A codebook operator against its NumPy reference."""

    operator: str

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases(self.operator)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases(self.operator)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor_of(self.operator, as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """The compute type C."""
        wide = as_problem(problem).float_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """How codes are chosen."""
        return planq.Rounding(getattr(as_problem(problem), "rounding", "nearest_even"))

    def variety(self, problem: Hashable) -> str:
        """Whether blocks, or the tensor, are whole vectors."""
        fields = as_problem(problem)
        size = getattr(fields, "block_size", fields.count)
        whole = size % VECTOR == 0 and fields.count % size == 0
        return "vectors" if whole else "edges"

    def run(
        self, problem: Problem, device: Device = HOST_DEVICE, /, **inputs: Array
    ) -> dict[str, Array]:
        """The outputs as stored."""
        bench = Bench(device, self.descriptor(problem))
        bench.load(inputs)
        bench.run()
        return bench.outputs()

    def check(self, problem: Problem, device: Device = HOST_DEVICE, /, **inputs: Any) -> None:
        """Runs and compares every byte with the reference."""
        bench = Bench(device, self.descriptor(problem))
        bench.load(inputs)
        bench.run()
        bench.check(inputs, problem.expected(inputs), f"{bench.plan.sku} on {problem.id}")


def as_problem(problem: Hashable) -> Problem:
    """A problem of one of these operators."""
    assert isinstance(problem, Problem)
    return problem
