"""`matmul3` for the tests that are generated from the registry."""

from __future__ import annotations

import importlib
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import planq
from planq.audit.promises import Sums
from planq.audit.reference.formats import Array

NATIVE: Any = importlib.import_module("operators.matmul3")


@dataclass(frozen=True)
class Problem:
    """(m, k) by the transpose of (n, k)."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Part:
    """A row of `a`."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """The row alone."""
        return replace(self.whole, m=1)

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """All of `b`."""
        return {**whole, "a": whole["a"][self.row : self.row + 1]}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """A row of the product."""
        return {"output": whole["output"][self.row : self.row + 1]}


@dataclass(frozen=True)
class Case:
    """A product of numbers of many magnitudes."""

    problem: Problem
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The extents and the seed."""
        return f"{self.problem.m}x{self.problem.n}x{self.problem.k},seed={self.seed}"

    @property
    def size(self) -> int:
        """Products."""
        return self.problem.m * self.problem.n * self.problem.k

    def reseeded(self, seed: int) -> Case:
        """Other numbers."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Terms that cancel."""
        rng = np.random.default_rng(self.seed)
        columns = 2.0 ** rng.integers(-8, 8, self.problem.k)
        rows = {"a": self.problem.m, "b": self.problem.n}
        return {
            name: (rng.standard_normal((count, self.problem.k)) * columns).astype(np.float32)
            for name, count in rows.items()
        }

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """A float32 sum in the order of terms."""
        output = np.zeros((self.problem.m, self.problem.n), np.float32)
        for i in range(self.problem.k):
            output += given["a"][:, i, None] * given["b"][None, :, i]
        return {"output": output}

    def sums(self, given: dict[str, Array], least: float) -> dict[str, Sums]:
        """Products of two float32 are exact in float64, and fsum rounds once."""
        assert least == 0
        shape = (self.problem.m, self.problem.n)
        a, b = (given[name].astype(np.float64) for name in ("a", "b"))
        terms = (a[:, None, :] * b[None, :, :]).reshape(math.prod(shape), self.problem.k)
        exact = np.array([math.fsum(row) for row in terms]).reshape(shape)
        magnitude = np.array([math.fsum(abs(row)) for row in terms]).reshape(shape)
        return {"output": Sums(exact, magnitude)}

    def parts(self) -> Iterator[Part]:
        """Rows."""
        return (Part(self.problem, row) for row in range(self.problem.m))


@cache
def descriptor(problem: Hashable) -> planq.Descriptor:
    """Of a problem."""
    assert isinstance(problem, Problem)
    m, n, k = problem.m, problem.n, problem.k
    shapes = {"a_shape": (m, k), "b_shape": (n, k), "output_shape": (m, n)}
    made: planq.Descriptor = NATIVE.Matmul3Descriptor(**shapes)
    return made


@dataclass(frozen=True)
class Matmul3Tests:
    """Two kernels of bits, and one whose sums are bounded."""

    def cases(self) -> tuple[Case, ...]:
        """Sums of few and of many terms."""
        return tuple(Case(Problem(m, n, k)) for m, n, k in [(1, 1, 1), (3, 4, 5), (5, 3, 300)])

    def empty_cases(self) -> tuple[Case, ...]:
        """No sums, and sums of nothing."""
        return tuple(Case(Problem(m, n, k)) for m, n, k in [(0, 4, 5), (3, 0, 5), (3, 4, 0)])

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What products are made in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nothing becomes a code."""
        return planq.Rounding.NONE

    def variety(self, problem: Hashable) -> str:
        """There is one."""
        return "product"


TESTS = Matmul3Tests()
