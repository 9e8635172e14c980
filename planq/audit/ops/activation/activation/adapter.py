"""From the reference's plain values of `activation` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar

import planq
from planq.audit.from_reference import descriptor_of
from planq.audit.memory import Device, Host
from planq.audit.ops.activation.activation import cases
from planq.audit.ops.activation.activation.reference import Problem
from planq.audit.ops.elementwise.elements import ElementTests, variety
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.functions import FUNCTIONS
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


class ActivationTests(ElementTests):
    """`activation` against its NumPy reference.

    Attributes:
        functions: Those of its functions that are elementary, each as a problem of so many numbers.
    """

    functions: ClassVar = {
        name: lambda count, name=name: Problem(
            (count,), name, False, "halves", "float32", "float32"
        )
        for name in cases.FUNCTIONS
        if name in FUNCTIONS
    }

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return (*cases.cases(), *cases.coded_cases())

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor_of("activation", problem)

    def variety(self, problem: Hashable) -> str:
        """Whether rows are whole vectors, and where the sides are."""
        assert isinstance(problem, Problem)
        sides = "pairs" if problem.layout == "interleaved" else "sides"
        return f"{variety(problem)}, {sides if problem.gated else 'alone'}"


TESTS = ActivationTests()


def computed(problem: Problem, given: Arrays, device: Device | None = None) -> Array:
    """The output of a run on these operands."""
    bench = Bench(device or Host(), descriptor_of("activation", problem))
    bench.load(given)
    bench.run()
    return bench.outputs()["output"]
