"""The group operators for the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.group.cases import EMPTY, PLACES, Case, cases_of

VECTOR = 8  # elements; whole vectors of 16 bytes of every type of elements


def whole_vectors(problem: Any) -> bool:
    """Whether groups are whole, and of whole vectors."""
    return bool(problem.group_size % VECTOR == 0 and problem.count % problem.group_size == 0)


@dataclass(frozen=True)
class GroupTests(ReferenceTests):
    """A group operator against its NumPy reference."""

    without_dims = "*"  # flat groups go across the ends of rows

    make: Callable[..., Any]

    @cached_property
    def _found(self) -> tuple[Case, ...]:
        return cases_of(self.make, PLACES)

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self._found

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases_of(self.make, EMPTY)

    def variety(self, problem: Any) -> str:
        """Whether groups are whole vectors."""
        return "vectors" if whole_vectors(problem) else "edges"
