"""The fixed problems and inputs of `coo_to_csc`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from planq.audit.ops.outlier import entries
from planq.audit.ops.outlier.coo_to_csc.reference import Problem, coo_to_csc
from planq.audit.ops.outlier.entries import KINDS
from planq.audit.ops.outlier.matrices import ELEMENTS
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array

# The number of columns has one, two and three bytes; lists are shorter and longer than the pieces
# that a GPU sorts.
PROBLEMS = (
    ((1, 1), 1),
    ((9,), 4),
    ((3, 5), 0),
    ((3, 5), 7),
    ((17, 33), 40),
    ((2, 3, 4), 24),
    ((70, 255), 500),
    ((70, 256), 2048),
    ((70, 257), 2049),
    ((300, 5000), 5000),
    ((40, 70000), 20001),
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
        return self.problem.shape[-1] + self.problem.capacity

    def reseeded(self, seed: int) -> Case:
        """Another list."""
        return replace(self, kind=KINDS[seed], seed=seed)

    def inputs(self) -> dict[str, Array]:
        """The list."""
        problem = self.problem
        room = problem.capacity
        made = entries.make(problem.rows, problem.shape[-1], room, self.kind, self.seed)
        return {
            "row_index": made.row_index,
            "column_index": made.column_index,
            "value": inputs.make("nonfinite", (room,), problem.value_dtype, self.seed),
            "count": made.count,
        }

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs."""
        return coo_to_csc(self.problem, given)

    def parts(self) -> Iterator[Any]:
        """None: a pointer counts the entries of all columns before."""
        return iter(())


def _cases(problems: tuple[tuple[tuple[int, ...], int], ...]) -> tuple[Case, ...]:
    found: list[Case] = []
    for problem in problems:
        for kind in KINDS:
            seed = len(found)
            found.append(Case(Problem(*problem, ELEMENTS[(seed + seed // 8) % 3]), kind, seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every matrix with every kind of list."""
    return _cases(PROBLEMS)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Matrices without elements."""
    return _cases(EMPTY)
