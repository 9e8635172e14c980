"""`thirds` for the tests that are generated from the registry."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import planq
from planq.audit.reference.formats import Array

NATIVE: Any = importlib.import_module("operators.thirds")
Shape = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """Two rows: one of the kernels takes no fewer."""

    problem: Shape
    row: int

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its input."""
        return {"input": whole["input"][self.row : self.row + 2]}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its output."""
        return {"output": whole["output"][self.row : self.row + 2]}


@dataclass(frozen=True)
class Case:
    """Numbers of every magnitude, subnormal ones too."""

    problem: Shape
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The shape and the seed."""
        return f"{self.problem[0]}x{self.problem[1]},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements."""
        return self.problem[0] * self.problem[1]

    def reseeded(self, seed: int) -> Case:
        """Other numbers."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Bits at random, without infinities and NaN."""
        bits = np.random.default_rng(self.seed).integers(0, 0xFF << 23, self.problem, np.uint32)
        return {"input": (bits | (bits & 1) << 31).view(np.float32)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The quotient to the nearest."""
        return {"output": given["input"] / np.float32(3)}

    def parts(self) -> Iterator[Part]:
        """Pairs of rows."""
        pairs = range(0, self.problem[0] - 1, 2)
        return (Part((2, self.problem[1]), row) for row in pairs)


@cache
def descriptor(problem: Hashable) -> planq.Descriptor:
    """Of a problem."""
    made: planq.Descriptor = NATIVE.ThirdsDescriptor(shape=problem)
    return made


@dataclass(frozen=True)
class ThirdsTests:
    """A kernel of bits, and one with constraints that is a ulp off."""

    def cases(self) -> tuple[Case, ...]:
        """Pairs of rows, and what is none."""
        return tuple(Case(shape) for shape in [(2, 1), (3, 5), (4, 8), (8, 257)])

    def empty_cases(self) -> tuple[Case, ...]:
        """No rows, and no columns."""
        return Case((0, 5)), Case((4, 0))

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What is divided or multiplied in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nothing becomes a code."""
        return planq.Rounding.NONE

    def variety(self, problem: Hashable) -> str:
        """There is one."""
        return "quotient"


TESTS = ThirdsTests()
