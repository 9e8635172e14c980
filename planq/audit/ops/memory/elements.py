"""What the operators of the memory family share: numbers of every type, in NumPy, and cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

import planq
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, STORAGE, Array, canonical, narrowed

INTEGERS = ("int8", "uint8", "int32", "int64")
DTYPES = (*FLOATS, *INTEGERS)
SHAPES = ((1,), (3, 5, 7), (64,), (2, 3, 64), (7, 301), (5, 2, 16))
EMPTY = ((0,), (0, 5), (5, 0), (3, 0, 4))


def stored(numbers: Array, dtype: str) -> Array:
    """Computed floats as the type keeps them: one rounding; of 8 bits none is infinite."""
    if dtype.startswith("float8"):
        largest = FLOATS[dtype].largest
        numbers = np.clip(numbers, -largest, largest)
    if numbers.dtype == STORAGE[dtype]:
        return canonical(numbers, dtype)
    return narrowed(numbers, dtype)


def modulo(numbers: Array, dtype: str) -> Array:
    """uint64 as the integer type keeps them: the low bits."""
    return np.asarray(numbers.astype(f"u{STORAGE[dtype].itemsize}").view(STORAGE[dtype]))


def elements(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Values of any type; of integers, and where fp8 may be NaN, all patterns that there are."""
    if dtype in FLOATS and not dtype.startswith("float8"):
        return inputs.make(kind, shape, dtype, seed)
    words = inputs.hashed(seed, math.prod(shape))
    raw = words.astype(f"u{STORAGE[dtype].itemsize}")
    return np.asarray(raw.view(STORAGE[dtype])).reshape(shape)


@dataclass(frozen=True)
class Problem:
    """A tensor of one type, in plain values."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers."""
        return self.dtype in INTEGERS

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{'x'.join(map(str, self.shape))},{self.dtype}"

    @property
    def variety(self) -> str:
        """Whether rows are whole vectors."""
        whole = self.shape[-1] % (16 // STORAGE[self.dtype].itemsize) == 0
        return "whole vectors" if whole else "edges"


# The reference: a problem and the inputs by name, to what the outputs hold.
Formula = Callable[[Problem, dict[str, Array]], Array]
Maker = Callable[["Case"], dict[str, Array]]


@dataclass(frozen=True)
class Row:
    """A row of a problem, which shares nothing with the others."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """The row alone."""
        return replace(self.whole, shape=(1, *self.whole.shape[1:]))

    def _own(self, tensors: dict[str, Array]) -> dict[str, Array]:
        rows = slice(self.row, self.row + 1)
        return {name: held[rows] if held.ndim else held for name, held in tensors.items()}

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Of tensors the row, of numbers all."""
        return self._own(whole)

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row."""
        return self._own(whole)


@dataclass(frozen=True)
class Case:
    """A problem with its inputs."""

    problem: Problem
    make: Maker = field(repr=False)
    formula: Formula = field(repr=False)
    seed: int = 0
    by_rows: bool = True

    @cached_property
    def id(self) -> str:
        """The problem and the seed."""
        return f"{self.problem.id},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """Other numbers."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Inputs by name, and what is written over."""
        return self.make(self)

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The output by name."""
        with np.errstate(all="ignore"):
            return {"output": self.formula(self.problem, given)}

    def parts(self) -> Iterator[Row]:
        """Rows, where an element does not depend on its index."""
        rows = range(self.problem.shape[0] if self.by_rows else 0)
        return (Row(self.problem, row) for row in rows)


@dataclass(frozen=True)
class ElementTests:
    """An operator of the family, as the registry's tests see it."""

    descriptor: Callable[[Any], planq.Descriptor]
    math: Callable[[Any], planq.MathPrecision]
    make: Maker
    formula: Formula
    by_rows: bool = True

    def _cases(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Case, ...]:
        problems = [Problem(shape, dtype) for dtype in DTYPES for shape in shapes]
        return tuple(
            Case(problem, self.make, self.formula, seed, self.by_rows)
            for seed, problem in enumerate(problems)
        )

    def cases(self) -> tuple[Case, ...]:
        """Every type and shape."""
        return self._cases(SHAPES)

    def empty_cases(self) -> tuple[Case, ...]:
        """The same without elements."""
        return self._cases(EMPTY)

    def rounding(self, problem: Any) -> planq.Rounding:
        """Floats to nearest; integers are not rounded."""
        return planq.Rounding.NONE if problem.is_integer else planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Any) -> str:
        """Whether rows are whole vectors."""
        return str(problem.variety)


def poison(problem: Problem) -> Array:
    """What an output holds before it is written over."""
    size = STORAGE[problem.dtype].itemsize
    raw = np.full((*problem.shape[:-1], problem.shape[-1] * size), 0x5A, np.uint8)
    return np.asarray(raw.view(STORAGE[problem.dtype]))


def exact(problem: Problem, number: Array) -> Array:
    """A number that the caller gives, as it is computed with: float64, or modulo 2^64."""
    return np.asarray(number).astype(np.float64) if not problem.is_integer else number.view("u8")


def kept(problem: Problem, numbers: Array) -> Array:
    """Exact numbers as the type keeps them."""
    own = modulo if problem.is_integer else stored
    return own(numbers, problem.dtype)


def number(problem: Problem, integers: tuple[int, ...], reals: tuple[float, ...], seed: int) -> Any:
    """One of several numbers, of the type that scalars have."""
    if problem.is_integer:
        return np.array(integers[seed % len(integers)], np.int64)
    return np.array(reals[seed % len(reals)], np.float64)
