"""The order of CUTLASS's mixed-dtype weights in NumPy, from its closed form, and the cases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ops.packing.int4 import random_bytes
from reference.formats import Array, pack_nibbles, unpack_nibbles


@dataclass(frozen=True)
class Problem:
    """A weight of `shape` (K, N), and which way it goes."""

    shape: tuple[int, int]
    dtype: str = "int8"
    transpose: bool = False
    inverse: bool = False

    @property
    def bits(self) -> int:
        """Of an element."""
        return 8 if self.dtype == "int8" else 4

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The plain matrix as it is stored."""
        rows, columns = self.shape[::-1] if self.transpose else self.shape
        return rows, columns * self.bits // 8

    @property
    def reordered_shape(self) -> tuple[int, int]:
        """The reordered weight as it is stored."""
        return self.shape[0], self.shape[1] * self.bits // 8

    @property
    def id(self) -> str:
        """All fields, as one word."""
        rows, columns = self.shape
        flags = f"{',transpose' * self.transpose}{',inverse' * self.inverse}"
        return f"{rows}x{columns},{self.dtype}{flags}"


def fields_of(problem: Problem) -> Array:
    """For every (k, n), which of the 8- or 4-bit fields of the reordered weight is its own."""
    rows, columns = problem.shape
    k, n = np.arange(rows)[:, None], np.arange(columns)[None, :]
    if problem.bits == 8:
        i = k % 16
        kappa = 16 * (k // 16) + 4 * (i // 2 % 4) + 2 * (i // 8) + i % 2
        c, e = kappa // 4, kappa % 4
        word = n // 2 * (rows // 2) + c // 16 * 32 + n % 2 * 16 + c % 16
        return np.asarray(4 * word + np.array([0, 2, 1, 3])[e])
    j, half = k // 2, k % 2
    moved = 16 * (j // 16) + 4 * (j % 4) + j % 16 // 4
    c, e = moved // 4, 2 * (moved % 4) + half
    word = n // 4 * (rows // 2) + c // 8 * 32 + n % 4 * 8 + c % 8
    return np.asarray(8 * word + e // 2 + 4 * (e % 2))


def shifted(problem: Problem, elements: Array) -> Array:
    """Half the range added, modulo the range."""
    half = 2 ** (problem.bits - 1)
    return ((elements.astype(np.int64) + half) % (2 * half)).astype(np.uint8)


def reorder(problem: Problem, matrix: Array) -> Array:
    """From the plain matrix, as stored, to the reordered weight."""
    elements = matrix.view(np.uint8)
    if problem.bits == 4:
        elements = unpack_nibbles(elements, 2 * elements.shape[1], "low_first")
    weight = elements.T if problem.transpose else elements
    fields = np.empty(weight.size, np.uint8)
    fields[fields_of(problem)] = shifted(problem, weight)
    stored = fields if problem.bits == 8 else pack_nibbles(fields, "low_first")
    return stored.reshape(problem.reordered_shape)


def restore(problem: Problem, reordered: Array) -> Array:
    """From the reordered weight to the plain matrix, as stored."""
    fields = reordered.reshape(-1)
    if problem.bits == 4:
        fields = unpack_nibbles(fields, 2 * fields.size, "low_first")
    weight = shifted(problem, fields[fields_of(problem)])
    elements = np.ascontiguousarray(weight.T if problem.transpose else weight)
    return pack_nibbles(elements, "low_first") if problem.bits == 4 else elements.view(np.int8)


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

    @property
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
