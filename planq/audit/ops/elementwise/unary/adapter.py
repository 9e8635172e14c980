"""From the reference's plain values of `unary` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.elementwise.elements import ElementTests
from planq.audit.ops.elementwise.unary import cases
from planq.audit.ops.elementwise.unary.reference import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.UnaryDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.UnaryDescriptor(**asdict(problem))


class UnaryTests(ElementTests):
    """`unary` against its NumPy reference.

    Attributes:
        functions: Each elementary function, as a problem of so many numbers.
    """

    functions: ClassVar = {
        name: lambda count, name=name: Problem((count,), name, "float32", "float32")
        for name in cases.FUNCTIONS
    }

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        assert isinstance(problem, Problem)
        return descriptor(problem)


TESTS = UnaryTests()


def computed(problem: Problem, x: Array, device: Device | None = None) -> Array:
    """The output of a run on these elements."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": x})
    bench.run()
    return bench.outputs()["output"]
