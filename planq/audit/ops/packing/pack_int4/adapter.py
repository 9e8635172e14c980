"""From the reference's plain values of `pack_int4` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.packing.int4 import Problem, variety
from planq.audit.ops.packing.pack_int4 import cases
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.PackInt4Descriptor:
    """The problem as a descriptor."""
    return planq.PackInt4Descriptor(
        shape=problem.shape,
        output_dtype=problem.dtype,
        axis=problem.axis,
        nibble_order=planq.NibbleOrder(problem.nibble_order),
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class PackInt4Tests:
    """`pack_int4` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Nothing is computed."""
        return planq.MathPrecision.NONE

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nothing is rounded."""
        return planq.Rounding.NONE

    def variety(self, problem: Hashable) -> str:
        """Which codes share a byte, and whether one is left over."""
        return variety(as_problem(problem))


TESTS = PackInt4Tests()


def pack(problem: Problem, values: Array, device: Device | None = None) -> Array:
    """The output of a run on `values`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": values})
    bench.run()
    return bench.outputs()["output"]
