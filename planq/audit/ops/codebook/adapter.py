"""The codebook operators for the tests."""

from __future__ import annotations

from dataclasses import dataclass

from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.codebook.cases import Case, Sample
from planq.audit.ops.codebook.reference import Problem

VECTOR = 8  # elements; whole vectors of 16 bytes of every type of elements


@dataclass(frozen=True)
class CodebookTests(ReferenceTests):
    """A codebook operator against its NumPy reference."""

    sample: Sample
    without_dims: str = "*"  # flat blocks go across the ends of rows

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self.sample.cases

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return self.sample.empty_cases

    def variety(self, problem: Problem) -> str:
        """Whether blocks, or the tensor, are whole vectors."""
        size = getattr(problem, "block_size", problem.count)
        whole = size % VECTOR == 0 and problem.count % size == 0
        return "vectors" if whole else "edges"
