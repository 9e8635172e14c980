"""The elementwise affine operators for the tests."""

from __future__ import annotations

from dataclasses import dataclass

from ops.affine.cases import Case, empty_cases, sampled_cases
from ops.affine.reference import Problem
from support.from_reference import ReferenceTests

VECTOR = 16  # elements; a multiple for every type, packed codes among them


@dataclass(frozen=True)
class AffineTests(ReferenceTests):
    """An elementwise affine operator against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases(self.operator)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases(self.operator)

    def variety(self, problem: Problem) -> str:
        """Whether rows are whole vectors."""
        return "vectors" if problem.shape[-1] % VECTOR == 0 else "edges"
