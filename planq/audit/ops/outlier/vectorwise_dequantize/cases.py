"""The fixed problems and inputs of `vectorwise_dequantize`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.outlier.layouts import random_integers
from planq.audit.ops.outlier.vectorwise import EMPTY, FORMS, WHOLE, WIDE, Problem
from planq.audit.ops.outlier.vectorwise_dequantize.reference import dequantize
from planq.audit.ops.outlier.vectorwise_quantize.cases import Part, parts_of, problems
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array
from planq.audit.reference.inputs import field, hashed

# Of scales: those of real segments, all exponents, NaN and infinities, 0, subnormals.
SCALES = ("normal", "patterns", "nonfinite", "zeros", "subnormal", "huge")


def zero_points(shape: tuple[int, ...], seed: int) -> Array:
    """Small, of 22 bits, of 30, and the ends of int32, in turn."""
    words = hashed(seed, math.prod(shape))
    sizes = np.array([8, 22, 30, 32])[(np.arange(words.size) + seed) % 4]
    points = (field(words, 8, 32) - 2**31) >> (32 - sizes)
    points = np.where(
        field(words, 50, 5) == 0, np.array([-(2**31), 2**31 - 1])[field(words, 60, 1)], points
    )
    return points.astype(np.int32).reshape(shape)


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    data: str = "normal"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},scale={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return replace(self, data="patterns", seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Codes of every value, scales of the kind, zero points of all sizes."""
        problem = self.problem
        scalar = np.dtype(problem.scalar).name
        codes = random_integers(problem.shape, "int8", self.seed)
        found = {
            "input": codes.view(problem.code),
            "scale": inputs.make(self.data, problem.statistic_shape, scalar, self.seed),
        }
        if problem.shifted:
            found["zero_point"] = zero_points(problem.statistic_shape, self.seed)
        return found

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return {"output": dequantize(self.problem, given)}

    def parts(self) -> Iterator[Part]:
        """Vectors apart from each other."""
        return parts_of(self.problem)


@cache
def cases() -> tuple[Case, ...]:
    """Every form and type on every shape, and large tensors; scales of all kinds in turn."""
    found = [
        Case(problem, SCALES[(turn + turn // len(SCALES)) % len(SCALES)], turn)
        for turn, problem in enumerate(problems())
    ]
    for dtype, (number, form) in itertools.product(INPUT_DTYPES, enumerate(FORMS)):
        shape, axis = WIDE[number % len(WIDE)]
        problem = Problem(shape, dtype, form, -1 if form in WHOLE else axis)
        found.append(Case(problem, "normal", len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return tuple(
        Case(
            Problem(shape, INPUT_DTYPES[turn % 4], form, -1 if form in WHOLE else axis),
            "normal",
            turn,
        )
        for turn, (form, (shape, axis)) in enumerate(itertools.product(FORMS, EMPTY))
    )
