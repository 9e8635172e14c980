"""The fixed problems and inputs of `row_column_absmax`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from planq.audit.ops.outlier import matrices
from planq.audit.ops.outlier.matrices import ELEMENTS, EMPTY, SHAPES
from planq.audit.ops.outlier.row_column_absmax.reference import Problem, row_column_absmax
from planq.audit.reference.formats import Array

KINDS = ("spiked", "rows", "mixed", "spiked", "patterns", "nonfinite", "zeros", "huge", "finite")
THRESHOLDS = (6.0, 0.0, 2.5, 1.0, 0.1, 1e-30)


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    data: str = "spiked"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the input."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return Case(self.problem, "rows", seed)

    def inputs(self) -> dict[str, Array]:
        """The input by name."""
        problem = self.problem
        return {"input": matrices.make(self.data, problem.shape, problem.input_dtype, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs."""
        return row_column_absmax(self.problem, given["input"])

    def parts(self) -> Iterator[Any]:
        """None that has all results of its own: a row is a segment, and so is a column."""
        return iter(())


def _cases(shapes: tuple[tuple[int, ...], ...]) -> tuple[Case, ...]:
    found: list[Case] = []
    for dtype in ELEMENTS:
        for place, shape in enumerate(shapes):
            for turn in range(2):
                seed = len(found)
                threshold = THRESHOLDS[(place + turn) % len(THRESHOLDS)]
                kind = KINDS[(seed + seed // 9) % len(KINDS)]
                found.append(Case(Problem(shape, dtype, threshold), kind, seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every element type and shape, with two thresholds."""
    return _cases(SHAPES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return _cases(EMPTY)
