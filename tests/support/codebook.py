"""The codebook operators for the tests."""

from __future__ import annotations

from dataclasses import dataclass

from reference.codebook import Problem
from reference.codebook_cases import Case, empty_cases, sampled_cases
from support.from_reference import ReferenceTests

VECTOR = 8  # elements; whole vectors of 16 bytes of every type of elements


@dataclass(frozen=True)
class CodebookTests(ReferenceTests):
    """A codebook operator against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases(self.operator)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases(self.operator)

    def variety(self, problem: Problem) -> str:
        """Whether blocks, or the tensor, are whole vectors."""
        size = getattr(problem, "block_size", problem.count)
        whole = size % VECTOR == 0 and problem.count % size == 0
        return "vectors" if whole else "edges"
