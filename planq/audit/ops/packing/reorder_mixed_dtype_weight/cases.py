"""The fixed problems and inputs of `reorder_mixed_dtype_weight`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.packing.int4 import random_bytes
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import Problem, reorder, restore
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Part:
    """Some rows of a matrix whose columns are reordered apart from each other."""

    problem: Problem
    matrix: tuple[slice, ...]
    runs: slice

    def _cut(self, whole: dict[str, Array], name: str, plain: bool) -> dict[str, Array]:
        if plain:
            return {name: np.ascontiguousarray(whole[name][self.matrix])}
        cut = whole[name].reshape(-1)[self.runs]
        return {name: cut.reshape(self.problem.reordered_shape)}

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's input out of the whole's."""
        return self._cut(whole, "input", not self.problem.inverse)

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's output out of the whole's."""
        return self._cut(whole, "output", self.problem.inverse)


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
        """Elements of every value."""
        problem = self.problem
        if problem.inverse:
            return {"input": random_bytes(problem.reordered_shape, self.seed)}
        matrix = random_bytes(problem.matrix_shape, self.seed)
        return {"input": matrix.view(np.int8) if problem.bits == 8 else matrix}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        way = restore if self.problem.inverse else reorder
        return {"output": way(self.problem, given["input"])}

    def parts(self) -> Iterator[Part]:
        """Every 64 columns of the weight, whose runs follow one another."""
        problem = self.problem
        rows, columns = problem.shape
        for start in range(0, columns, 64):
            alone = replace(problem, shape=(rows, 64))
            width = 64 * problem.bits // 8
            first = start * problem.bits // 8
            cut = slice(start, start + 64) if problem.transpose else slice(first, first + width)
            matrix = (cut,) if problem.transpose else (slice(None), cut)
            yield Part(alone, matrix, slice(first * rows, (first + width) * rows))


# Multiples of a kernel's tile and not, in both directions; one tile, few and many.
SHAPES = (
    (64, 64),
    (128, 128),
    (64, 192),
    (192, 64),
    (256, 256),
    (320, 448),
    (64, 1024),
    (1024, 64),
    (576, 704),
    (1024, 1536),
)
EMPTY = ((0, 64), (64, 0), (0, 0))


def _cases(shapes: tuple[tuple[int, int], ...]) -> tuple[Case, ...]:
    problems = [
        Problem(shape, dtype, transpose, inverse)
        for shape in shapes
        for dtype in ("int8", "int4")
        for transpose in (False, True)
        for inverse in (False, True)
    ]
    return tuple(Case(problem, seed) for seed, problem in enumerate(problems))


@cache
def cases() -> tuple[Case, ...]:
    """Every shape with every dtype, in every direction."""
    return _cases(SHAPES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return _cases(EMPTY)
