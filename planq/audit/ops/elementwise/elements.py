"""What operators of single elements share: problems, values to compute with, rows of a case."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

import planq
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, VECTOR, Array, Arrays, canonical, narrowed
from planq.audit.reference.functions import FUNCTIONS
from planq.audit.reference.inputs import hashed

TYPES = ("float16", "bfloat16", "float32")
PAIRS = tuple((given, wanted) for given in TYPES for wanted in TYPES)
DATA = ("special", "normal", "patterns", "nonfinite", "subnormal", "huge", "mixed", "finite")
SHAPES = ((1,), (3, 5, 7), (2, 3, 64), (7, 301), (5, 2, 16), (1030,), (4, 1, 24), (2, 2, 512))
EMPTY = ((0,), (0, 5), (5, 0), (3, 0, 4))
# Elements of which a thread of a GPU with 132 multiprocessors has several: as rows, and as rows
# that are no whole vectors.
LARGE = {"float16": (8, 135_200), "bfloat16": (7, 154_491), "float32": (8, 67_600)}

# Where functions go over from one formula to another, and numbers beside these.
TURNS = (
    *(0.0, 1e-45, 2.0**-126, 2.0**-24, 0.25, 0.5, 0.9, 1.0, 2.0, 4.0, 9.0, 10.0, 11.0, 14.5, 15.0),
    *(17.0, 20.0, 88.5, 88.73, 89.0, 103.9, 104.0, 110.0, 127.0, 128.0, 149.0, 150.0, 151.0),
    *(2.0**22, 65504.0, 2.0**64, 3.0e38, math.inf, math.nan),
)


def special(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Numbers near the turns of functions, of both signs, and NaN of any payload."""
    own = FLOATS[dtype].dtype
    count = math.prod(shape)
    words = hashed(seed, count)
    with np.errstate(all="ignore"):
        turns = np.array(TURNS, np.float32).astype(own)[words % np.uint64(len(TURNS))]
    raw = turns.view(f"u{own.itemsize}")
    step = (words >> np.uint64(32) & np.uint64(3)).astype(raw.dtype)
    sign = (words >> np.uint64(40) & np.uint64(1)).astype(raw.dtype) << (8 * own.itemsize - 1)
    return np.asarray((raw + step) ^ sign).view(own).reshape(shape)


def values(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Values of a kind."""
    if kind == "special":
        return special(shape, dtype, seed)
    return inputs.make(kind, shape, dtype, seed)


def of_each(function: str, numbers: Array) -> Array:
    """A function of float32 numbers; of many that are alike it is computed once."""
    if numbers.size == 0:
        return numbers.astype(np.float32)
    bits, places = np.unique(numbers.view(np.uint32), return_inverse=True)
    found = FUNCTIONS[function](bits.view(np.float32))
    return found[places].reshape(numbers.shape)


def stored(numbers: Array, dtype: str) -> Array:
    """float32 numbers as the type keeps them: one rounding."""
    return canonical(numbers, dtype) if dtype == "float32" else narrowed(numbers, dtype)


def shape_text(shape: tuple[int, ...]) -> str:
    """As a part of a name."""
    return "x".join(map(str, shape))


class ProblemOfElements(Protocol):
    """A problem of tensors of one shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""

    @property
    def input_dtype(self) -> str:
        """Of the input."""


def variety(problem: ProblemOfElements) -> str:
    """Whether rows are whole vectors."""
    return "whole vectors" if problem.shape[-1] % VECTOR[problem.input_dtype] == 0 else "edges"


@dataclass(frozen=True)
class Row:
    """A row of a problem, which shares no result with the others."""

    whole: Any
    row: int
    shared: tuple[str, ...] = ()  # operands that every row has whole

    @property
    def problem(self) -> Any:
        """The row alone."""
        return replace(self.whole, shape=(1, *self.whole.shape[1:]))

    def _own(self, tensors: Arrays) -> Arrays:
        rows = slice(self.row, self.row + 1)
        apart = {n: held.ndim > 0 and n not in self.shared for n, held in tensors.items()}
        return {n: held[rows] if apart[n] else held for n, held in tensors.items()}

    def inputs(self, whole: Arrays) -> Arrays:
        """Of tensors the row, of numbers all."""
        return self._own(whole)

    def outputs(self, whole: Arrays) -> Arrays:
        """The row."""
        return self._own(whole)


def rows_of(problem: ProblemOfElements, shared: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows; of one axis there are none."""
    rows = problem.shape[0] if len(problem.shape) > 1 else 0
    return (Row(problem, row, shared) for row in range(rows))


@dataclass(frozen=True)
class ElementCase:
    """A problem with its operands; an operator adds what they are."""

    problem: Any
    data: str = "special"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the values, as one word."""
        return f"{self.problem.id},{self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the output."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Self:
        """Other values."""
        return replace(self, seed=seed + 1000)

    def parts(self) -> Iterator[Row]:
        """Rows."""
        return rows_of(self.problem)


class ElementTests:
    """What the registry's tests ask of each of these operators alike."""

    def math(self, problem: Any) -> planq.MathPrecision:
        """What everything is computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Any) -> planq.Rounding:
        """To the output's type."""
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Any) -> str:
        """Whether rows are whole vectors."""
        return variety(problem)
