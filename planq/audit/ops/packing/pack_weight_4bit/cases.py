"""The fixed problems and inputs of `pack_weight_4bit`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.packing.int4 import DTYPES, ORDERS, random_bytes
from planq.audit.ops.packing.pack_weight_4bit.reference import TILE, PackProblem, pack, restore
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Part:
    """A row of tiles, as a problem of its own."""

    whole: PackProblem
    first: int

    @property
    def problem(self) -> PackProblem:
        """The rows alone."""
        return self.whole.with_rows(min(self.whole.weight_shape[0] - self.first, TILE))

    def _cut(self, values: Array, plain: bool) -> Array:
        first, step = (self.first, TILE) if plain else (self.first // TILE, 1)
        return np.ascontiguousarray(values[first : first + step])

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's input out of the whole's."""
        return {"input": self._cut(whole["input"], not self.whole.inverse)}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's output out of the whole's."""
        return {"output": self._cut(whole["output"], self.whole.inverse)}


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: PackProblem
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},seed={self.seed}"

    @property
    def size(self) -> int:
        """Codes."""
        return math.prod(self.problem.weight_shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Codes of every value, spare ones among them."""
        problem = self.problem
        (n, k), (down, across) = problem.weight_shape, problem.tiles
        shape = (down, across * TILE * TILE // 2) if problem.inverse else (n, -(-k // 2))
        return {"input": random_bytes(shape, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        way = restore if self.problem.inverse else pack
        return {"output": way(self.problem, given["input"])}

    def parts(self) -> Iterator[Part]:
        """Rows of tiles."""
        for first in range(0, self.problem.weight_shape[0], TILE):
            yield Part(self.problem, first)


# Whole tiles, parts of them, one code; few and many.
SHAPES = ((64, 64), (128, 192), (1, 1), (65, 130), (200, 33), (256, 1024))
EMPTY = ((0, 64), (64, 0), (0, 0))


def _cases(shapes: tuple[tuple[int, int], ...]) -> tuple[Case, ...]:
    """Every shape with both dtypes, there and back; orders in turn."""
    fields = itertools.product(shapes, DTYPES, (False, True))
    return tuple(
        Case(PackProblem(shape, dtype, inverse, ORDERS[(seed // 4 + seed) % 2]), seed)
        for seed, (shape, dtype, inverse) in enumerate(fields)
    )


@cache
def cases() -> tuple[Case, ...]:
    """Problems with codes."""
    return _cases(SHAPES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return _cases(EMPTY)
