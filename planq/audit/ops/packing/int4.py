"""4-bit codes along any axis: the problems of packing and unpacking, and their cases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import hashed

DTYPES = ("int4", "uint4")
ORDERS = ("low_first", "high_first")
TILE = 70001  # elements; larger tensors repeat them


@dataclass(frozen=True)
class Problem:
    """Codes of a shape, one a byte on one side and two a byte along `axis` on the other."""

    shape: tuple[int, ...]
    dtype: str = "int4"
    axis: int = -1
    nibble_order: str = "low_first"

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The axis halved, rounded up."""
        shape = list(self.shape)
        shape[self.axis] = -(-shape[self.axis] // 2)
        return tuple(shape)

    @property
    def storage(self) -> str:
        """What a code of its own is stored in."""
        return "int8" if self.dtype == "int4" else "uint8"

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        shape = "x".join(map(str, self.shape))
        return f"{shape},{self.dtype},axis={self.axis},{self.nibble_order}"


def random_bytes(shape: tuple[int, ...], seed: int) -> Array:
    """Bytes of every value."""
    count = math.prod(shape)
    words = hashed(seed, min(count, TILE)) >> np.uint64(56)
    return np.resize(words.astype(np.uint8), count).reshape(shape)


@dataclass(frozen=True)
class Part:
    """Some indices of an axis that no byte crosses, as a problem of their own."""

    problem: Problem
    piece: tuple[slice, ...]

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's input out of the whole's."""
        return {"input": np.ascontiguousarray(whole["input"][self.piece])}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's output out of the whole's."""
        return {"output": np.ascontiguousarray(whole["output"][self.piece])}


@dataclass(frozen=True)
class Case:
    """A problem with its input; each direction has a class of its own."""

    problem: Problem
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},seed={self.seed}"

    @property
    def size(self) -> int:
        """Codes."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Packed bytes, or codes that need not be 4 bits."""
        raise NotImplementedError

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        raise NotImplementedError

    def parts(self) -> Iterator[Part]:
        """Each index of the first axis along which nothing is packed."""
        rank = len(self.problem.shape)
        free = [axis for axis in range(rank) if axis != self.problem.axis % rank]
        for index in range(self.problem.shape[free[0]] if free else 0):
            shape = list(self.problem.shape)
            shape[free[0]] = 1
            piece = (slice(None),) * free[0] + (slice(index, index + 1),)
            yield Part(replace(self.problem, shape=tuple(shape)), piece)


C = TypeVar("C", bound=Case)
# Rows of whole vectors and of parts of them; packed bytes whose codes are neighbours, rows apart,
# or neither; lonely codes at the end of a row, of a plane and of everything.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1,), -1),
    ((2,), 0),
    ((17,), 0),
    ((1, 1), 0),
    ((100, 1), 0),
    ((101, 1), 0),
    ((64, 1), -1),
    ((33, 2), 1),
    ((4, 64), -1),
    ((5, 96), 1),
    ((3, 7, 48), -1),
    ((5, 33), -1),
    ((6, 1001), -1),
    ((6, 32), 0),
    ((7, 48), 0),
    ((9, 100), -2),
    ((4, 3), 0),
    ((3, 5, 130), 1),
    ((3, 6, 64), 1),
    ((4, 5, 2, 16), 0),
    ((5, 4, 3, 8), 0),
    ((2, 3, 1, 4, 2, 3, 2, 5), 3),
    ((2, 3, 1, 4, 2, 3, 2, 5), 5),
    ((2, 3, 1, 4, 2, 3, 2, 5), -1),
    ((3, 4096), -1),
    ((255, 320), 0),
    ((70001,), 0),
    ((40, 20000), -1),
    ((41, 20000), 0),
    ((2**20,), 0),
)
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = (
    ((0,), 0),
    ((0, 5), 1),
    ((5, 0), 1),
    ((5, 0), 0),
    ((3, 0, 4), 1),
)


def cases_of(
    case: type[C], shapes: tuple[tuple[tuple[int, ...], int], ...] = SHAPES
) -> tuple[C, ...]:
    """Every shape with every dtype and order."""
    problems = [
        Problem(shape, dtype, axis, order)
        for shape, axis in shapes
        for dtype in DTYPES
        for order in ORDERS
    ]
    return tuple(case(problem, seed) for seed, problem in enumerate(problems))


def variety(problem: Problem) -> str:
    """Whether codes of a byte are neighbours, and whether one is left over."""
    last = problem.axis % len(problem.shape) == len(problem.shape) - 1
    odd = problem.shape[problem.axis] % 2 == 1
    return f"{'last' if last else 'other'} axis, {'odd' if odd else 'even'}"
