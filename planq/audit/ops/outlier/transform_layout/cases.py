"""The fixed problems and inputs of `transform_layout`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

from planq.audit.ops.outlier.layouts import DTYPES, LAYOUTS, matrix_of, memory_of, random_integers
from planq.audit.ops.outlier.transform_layout.reference import Problem, transform
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Part:
    """One row of the matrix that comes in."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """The row alone."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row out of the whole's input."""
        layout = self.whole.from_layout
        matrix = matrix_of(layout, whole["input"], *self.whole.matrix)
        return {"input": memory_of(layout, matrix[self.row : self.row + 1])}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row, or the column, out of the whole's output."""
        layout = self.whole.to_layout
        result = matrix_of(layout, whole["output"], *self.whole.result)
        cut = slice(self.row, self.row + 1)
        return {
            "output": memory_of(layout, result[:, cut] if self.whole.transpose else result[cut])
        }


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
        """Elements."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Integers of every value, also where no element lies."""
        problem = self.problem
        return {"input": random_integers(problem.input_shape, problem.dtype, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return {"output": transform(self.problem, given["input"])}

    def parts(self) -> Iterator[Part]:
        """The first row, the last one, and one between."""
        rows = self.problem.matrix[0]
        for row in sorted({0, rows // 2, rows - 1}):
            yield Part(self.problem, row)


# Less than a tile, parts of tiles in either direction, tiles and one more, rows of several axes.
SHAPES = (
    (1, 1),
    (33, 31),
    (8, 32),
    (130, 257),
    (64, 96),
    (5, 1000),
    (1000, 5),
    (3, 5, 70),
    (128, 128),
    (2, 3, 4, 36),
    (260, 132),
)
LARGE = (((1030, 2050), "col32"), ((2048, 1024), "col_turing"), ((515, 4100), "col_ampere"))
EMPTY = ((0, 5), (5, 0), (0, 0), (2, 0, 40), (3, 40, 0))
DIRECTIONS = tuple(itertools.product(LAYOUTS, LAYOUTS, (False, True)))


@cache
def cases() -> tuple[Case, ...]:
    """Every pair of layouts, in both directions and types, with shapes in turn."""
    found: list[Case] = []
    for number, (dtype, (one, other, transpose)) in enumerate(
        itertools.product(DTYPES, DIRECTIONS)
    ):
        for turn in range(3):
            shape = SHAPES[(number + 4 * turn) % len(SHAPES)]
            found.append(Case(Problem(shape, dtype, one, other, transpose), len(found)))
    for dtype, (shape, layout), transpose in itertools.product(DTYPES, LARGE, (False, True)):
        found.append(Case(Problem(shape, dtype, "row", layout, transpose), len(found)))
        found.append(Case(Problem(shape, dtype, layout, "row", transpose), len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Matrices without elements, some of whose layouts still have places."""
    return tuple(
        Case(Problem(shape, DTYPES[turn % 2], one, other, transpose), turn)
        for turn, (shape, (one, other, transpose)) in enumerate(
            itertools.product(EMPTY, DIRECTIONS)
        )
        if turn % 3 == 0
    )
