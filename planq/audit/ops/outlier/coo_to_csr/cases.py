"""The fixed problems and inputs of `coo_to_csr`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from planq.audit.ops.outlier import entries
from planq.audit.ops.outlier.coo_to_csr.reference import Problem, coo_to_csr
from planq.audit.ops.outlier.entries import KINDS
from planq.audit.reference.formats import Array

PROBLEMS = (
    ((1, 1), 1),
    ((9,), 4),
    ((3, 5), 0),
    ((3, 5), 7),
    ((17, 33), 40),
    ((2, 3, 4), 24),
    ((70, 200), 500),
    ((1000, 3), 333),
    ((5000, 64), 4096),
)
EMPTY = (((0, 5), 3), ((5, 0), 3), ((0,), 2), ((0, 0), 0))


@dataclass(frozen=True)
class Case:
    """A problem with its list."""

    problem: Problem
    kind: str = "spread"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the list, as one word."""
        return f"{self.problem.id},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Pointers and entries."""
        return self.problem.rows + self.problem.capacity

    def reseeded(self, seed: int) -> Case:
        """Another list."""
        return replace(self, kind=KINDS[seed], seed=seed)

    def inputs(self) -> dict[str, Array]:
        """The list, as far as it is read."""
        problem = self.problem
        made = entries.make(problem.rows, problem.shape[-1], problem.capacity, self.kind, self.seed)
        return {"row_index": made.row_index, "count": made.count}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return coo_to_csr(self.problem, given["row_index"], given["count"])

    def parts(self) -> Iterator[Any]:
        """None: a pointer counts the entries of all rows before."""
        return iter(())


def _cases(problems: tuple[tuple[tuple[int, ...], int], ...]) -> tuple[Case, ...]:
    made = [(Problem(*problem), kind) for problem in problems for kind in KINDS]
    return tuple(Case(problem, kind, seed) for seed, (problem, kind) in enumerate(made))


@cache
def cases() -> tuple[Case, ...]:
    """Every matrix with every kind of list."""
    return _cases(PROBLEMS)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Matrices without elements."""
    return _cases(EMPTY)
