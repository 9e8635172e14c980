"""The fixed problems and inputs of `argmax`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.gather.argmax.reference import Problem, argmax
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays

ELEMENTS = ("float16", "bfloat16", "float32")
# Those of the reference's inputs; one largest element at either end; nothing but one number.
DATA = (
    *("normal", "zeros", "ties", "nonfinite", "patterns", "last", "subnormal", "lowest", "mixed"),
    *("tiled", "first", "all_nonfinite", "huge", "constant"),
)
# Rows of less than a vector, of less than a warp's, of a block's, and of several blocks'; with and
# without edges; few rows and many.
SHAPES = (
    *((1,), (5,), (4099,), (1, 1), (3, 7), (7, 1), (2, 3, 17), (64, 64), (300, 8), (700, 33)),
    *((9, 512), (4, 1000), (3, 2, 2048), (40, 4096), (1, 16384), (2, 32001), (5, 20000)),
    *((1, 70001), (33, 8200), (600, 4100), (2, 128256), (1, 256000)),
)
EMPTY = ((0, 5), (2, 0, 40000))


@dataclass(frozen=True)
class Row:
    """One row."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """Of one row."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: Arrays) -> Arrays:
        """Its elements."""
        rows = whole["input"].reshape(self.whole.count, -1)
        return {"input": rows[self.row : self.row + 1]}

    def outputs(self, whole: Arrays) -> Arrays:
        """Its index."""
        return {"output": whole["output"].reshape(-1)[self.row : self.row + 1]}


@dataclass(frozen=True)
class Case:
    """A problem with its elements."""

    problem: Problem
    data: str = "normal"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the elements, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of all rows."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """Other elements."""
        return replace(self, data=DATA[seed % len(DATA)], seed=seed + 1000)

    def _elements(self) -> Array:
        shape, dtype = self.problem.shape, self.problem.input_dtype
        fmt = FLOATS[dtype]
        if self.data == "lowest":
            return np.full(shape, -np.inf).astype(fmt.dtype)
        if self.data in ("first", "last"):
            values = inputs.make("finite", shape, dtype, self.seed)
            values[..., 0 if self.data == "first" else -1] = np.inf
            return values
        return inputs.make(self.data, shape, dtype, self.seed)

    def inputs(self) -> Arrays:
        """The elements."""
        return {"input": self._elements()}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return argmax(self.problem, given)

    def parts(self) -> Iterator[Row]:
        """Rows."""
        return (Row(self.problem, row) for row in range(self.problem.count))


def _cases(shapes: tuple[tuple[int, ...], ...], turns: int) -> tuple[Case, ...]:
    found: list[Case] = []
    for shape in shapes:
        for _ in range(turns if math.prod(shape) < 2**17 else 1):
            for dtype in ELEMENTS:
                seed = len(found)
                wide = "int64" if seed % 2 == 0 else "int32"
                data = DATA[(seed + seed // len(DATA)) % len(DATA)]
                found.append(Case(Problem(shape, dtype, wide), data, seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every shape with every type."""
    return _cases(SHAPES, 3)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows."""
    return _cases(EMPTY, 1)
