"""The elementwise affine operators for the tests."""

from __future__ import annotations

from dataclasses import dataclass

from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.affine.cases import Case, Sample
from planq.audit.ops.affine.reference import Problem

VECTOR = 16  # elements; a multiple for every type, packed codes among them


@dataclass(frozen=True)
class AffineTests(ReferenceTests):
    """An elementwise affine operator against its NumPy reference."""

    sample: Sample

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self.sample.cases

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return self.sample.empty_cases

    def variety(self, problem: Problem) -> str:
        """Whether rows are whole vectors."""
        return "vectors" if problem.shape[-1] % VECTOR == 0 else "edges"
