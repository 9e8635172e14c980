"""From the reference's plain values of `add` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.ops.elementwise.add import cases
from planq.audit.ops.elementwise.add.reference import Problem
from planq.audit.ops.elementwise.elements import ElementTests

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.AddDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.AddDescriptor(**asdict(problem))


class AddTests(ElementTests):
    """`add` against its NumPy reference."""

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


TESTS = AddTests()
