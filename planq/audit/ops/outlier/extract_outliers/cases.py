"""The fixed problems and inputs of `extract_outliers`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.outlier.extract_outliers.reference import Problem, extract
from planq.audit.ops.outlier.layouts import DTYPES, LAYOUTS, matrix_of, memory_of, random_integers
from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import field, hashed


@dataclass(frozen=True)
class Part:
    """One row of the matrix."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """The row alone."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row out of the whole's matrix, with the same list."""
        layout = self.whole.layout
        matrix = matrix_of(layout, whole["input"], *self.whole.matrix)
        return {**whole, "input": memory_of(layout, matrix[self.row : self.row + 1])}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row out of the whole's output."""
        rows = whole["output"].reshape(self.whole.matrix[0], self.whole.capacity)
        return {"output": rows[self.row : self.row + 1]}


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the output."""
        return math.prod(self.problem.shape[:-1]) * self.problem.capacity

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """A list that ends early, fits or is longer than there is room for.

        -1 and names of no column are among it, and behind its end names that must not be read.
        """
        problem, words = self.problem, hashed(self.seed, self.problem.capacity + 1)
        columns, capacity = problem.shape[-1], problem.capacity
        names = field(words[1:], 0, 30) % max(columns, 1)
        strange = field(words[1:], 40, 4)
        names = np.select(
            [strange == 0, strange == 1, strange == 2], [-1, columns, 2**31 - 1], names
        )
        count = (capacity, capacity + 3, int(field(words, 0, 20)[0]) % (capacity + 1), -2)
        return {
            "input": random_integers(problem.input_shape, problem.dtype, self.seed),
            "index": names.astype(np.int32),
            "count": np.array([count[self.seed % len(count)]], np.int64),
        }

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return {"output": extract(self.problem, given)}

    def parts(self) -> Iterator[Part]:
        """The first row, the last one, and one between."""
        rows = self.problem.matrix[0]
        for row in sorted({0, rows // 2, rows - 1}):
            yield Part(self.problem, row)


SHAPES = ((1, 1), (33, 70), (8, 32), (130, 257), (3, 5, 40), (1000, 65), (2, 3, 4, 33))
CAPACITIES = (1, 16, 5, 64, 300)
EMPTY = (((0, 5), 4), ((5, 0), 4), ((5, 7), 0), ((2, 0, 3), 2))


@cache
def cases() -> tuple[Case, ...]:
    """Every layout and type, with shapes and capacities in turn."""
    found: list[Case] = []
    for number, (layout, dtype) in enumerate(itertools.product(LAYOUTS, DTYPES)):
        for turn, shape in enumerate(SHAPES):
            capacity = CAPACITIES[(number + turn) % len(CAPACITIES)]
            found.append(Case(Problem(shape, dtype, layout, capacity), len(found)))
        found.append(Case(Problem((4096, 520), dtype, layout, 40), len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without rows, columns, or room."""
    return tuple(
        Case(Problem(shape, DTYPES[turn % 2], layout, capacity), 4 * turn)
        for turn, ((shape, capacity), layout) in enumerate(itertools.product(EMPTY, LAYOUTS))
    )
