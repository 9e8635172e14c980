"""Sums in the fixed order, in NumPy; problems and cases of the operators that take them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, INPUT_DTYPES, VECTOR, Array

RUN = 1024
KINDS = ("normal", "mixed", "patterns", "finite", "zeros", "subnormal", "huge", "finite", "offset")
COUNTS = (1, 2, 3, 17, 255, 1023, 1024, 1025, 3000, 20480)
SHAPES = ((3, 5, 7), (40, 100), (300, 3), (1, 1, 1, 1, 1, 2, 3, 17), (2, 33, 130), (5, 2000))
# Values and seeds with which a sum by fma has other bits, and so has a maximum without its NaNs.
TELLING = (
    ("offset", (2,), 1),
    ("offset", (257,), 12),
    ("normal", (3, 700), 9),
    ("nonfinite", (1500,), 3),
)
# More runs than one run of them holds: three levels.
WIDE = ((RUN * RUN + 1025,),)


@dataclass(frozen=True)
class Problem:
    """A tensor of which one number is measured, in plain values; `p` is a norm's."""

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    p: str | None = None

    @property
    def result(self) -> Any:
        """The compute type, which the result has too."""
        return np.float64 if self.input_dtype == "float64" else np.float32

    @cached_property
    def id(self) -> str:
        """A stable name: every field that is given."""
        order = [f"p={self.p}"] if self.p else []
        return ",".join(["x".join(map(str, self.shape)), self.input_dtype, *order])

    @property
    def fields(self) -> dict[str, Any]:
        """What a descriptor is given."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def variety(self) -> str:
        """Whether the elements are whole vectors."""
        whole = math.prod(self.shape) % VECTOR[self.input_dtype] == 0
        return "whole vectors" if whole else "edges"


def tree_sum(terms: Array) -> Any:
    """Up to 1024 terms by neighbours, filled with +0 to a power of two; more by runs of 1024."""
    if terms.size == 0:
        return terms.dtype.type(0)
    while terms.size > RUN:
        terms = np.array([tree_sum(terms[i : i + RUN]) for i in range(0, terms.size, RUN)])
    full = np.zeros(1 << (terms.size - 1).bit_length(), terms.dtype)
    full[: terms.size] = terms
    while full.size > 1:
        full = full[0::2] + full[1::2]
    return full[0]


def as_stored(number: Any) -> Array:
    """One element; a NaN in its canonical form."""
    stored = np.array([number])
    nan = np.array(CANONICAL_NAN[stored.dtype.name], f"u{stored.itemsize}").view(stored.dtype)
    return np.where(np.isnan(stored), nan, stored)


def square_sum(problem: Problem, x: Array) -> Array:
    """The sum of squares."""
    wide = x.astype(problem.result).ravel()
    with np.errstate(all="ignore"):
        return as_stored(tree_sum(wide * wide))


def norm(problem: Problem, x: Array) -> Array:
    """The 1-, 2- or infinity-norm."""
    wide = np.abs(x.astype(problem.result).ravel())
    with np.errstate(all="ignore"):
        if problem.p == "one":
            return as_stored(tree_sum(wide))
        if problem.p == "two":
            return as_stored(np.sqrt(tree_sum(wide * wide)))
        return as_stored(np.max(wide, initial=0))


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    data: str = "mixed"
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
        """The problem on finite values of all kinds."""
        return Case(self.problem, "finite", seed)

    def inputs(self) -> dict[str, Array]:
        """The input by name."""
        problem = self.problem
        return {"input": inputs.make(self.data, problem.shape, problem.input_dtype, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The output by name."""
        formula = norm if self.problem.p else square_sum
        return {"output": formula(self.problem, given["input"])}

    def parts(self) -> Iterator[Any]:
        """None: every element bears on the result."""
        return iter(())


def sampled_cases(orders: tuple[str | None, ...]) -> tuple[Case, ...]:
    """Every input dtype, order and shape; the kind of values changes from case to case."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for p in orders:
            for shape in (*((count,) for count in COUNTS), *SHAPES):
                seed = len(cases)
                kind = KINDS[(seed + seed // 7) % len(KINDS)]
                cases.append(Case(Problem(shape, dtype, p), kind, seed))
        for shape in WIDE:
            cases.append(Case(Problem(shape, dtype, orders[0]), "tiled", len(cases)))
    cases += [
        Case(Problem(shape, dtype, p), kind, seed)
        for dtype, p, (kind, shape, seed) in product(INPUT_DTYPES, orders, TELLING)
    ]
    return tuple(cases)


def empty_cases(orders: tuple[str | None, ...]) -> tuple[Case, ...]:
    """Tensors without elements."""
    return tuple(
        Case(Problem(shape, dtype, p), "finite")
        for dtype in INPUT_DTYPES
        for p in orders
        for shape in ((0,), (0, 5), (5, 0), (3, 0, 4))
    )
