"""The fixed problems and inputs of `vectorwise_quantize`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.outlier.vectorwise import EMPTY, FORMS, SHAPES, WHOLE, WIDE, Problem
from planq.audit.ops.outlier.vectorwise_quantize.reference import quantize
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array

KINDS = (
    "mixed",
    "finite",
    "normal",
    "nonfinite",
    "offset",
    "zeros",
    "huge",
    "constant",
    "subnormal",
    "ties",
    "all_nonfinite",
)


@dataclass(frozen=True)
class Part:
    """One index of an axis that no vector goes along."""

    problem: Problem
    piece: tuple[slice, ...]

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        return {name: np.ascontiguousarray(values[self.piece]) for name, values in whole.items()}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return self.inputs(whole)


def parts_of(problem: Problem) -> Iterator[Part]:
    """Each index of the first axis that no vector goes along."""
    rank = len(problem.shape)
    free = [axis for axis in range(rank) if axis != problem.axis % rank]
    if problem.form in WHOLE or not free:
        return
    for index in range(problem.shape[free[0]]):
        shape = list(problem.shape)
        shape[free[0]] = 1
        piece = (slice(None),) * free[0] + (slice(index, index + 1),)
        yield Part(replace(problem, shape=tuple(shape)), piece)


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
        """Elements."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, "mixed", seed)

    def inputs(self) -> dict[str, Array]:
        """Values of the kind."""
        problem = self.problem
        return {"input": inputs.make(self.data, problem.shape, problem.dtype, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs."""
        return quantize(self.problem, given["input"])

    def parts(self) -> Iterator[Part]:
        """Vectors apart from each other."""
        return parts_of(self.problem)


@cache
def problems() -> tuple[Problem, ...]:
    """Every form and type on every shape."""
    return tuple(
        Problem(shape, dtype, form, -1 if form in WHOLE else axis)
        for dtype, form, (shape, axis) in itertools.product(INPUT_DTYPES, FORMS, SHAPES)
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every form and type on every shape, and large tensors; values of all kinds in turn."""
    found = [
        Case(problem, KINDS[(turn + turn // len(KINDS)) % len(KINDS)], turn)
        for turn, problem in enumerate(problems())
    ]
    for dtype, (number, form) in itertools.product(INPUT_DTYPES, enumerate(FORMS)):
        for turn in range(2):
            shape, axis = WIDE[(number + 3 * turn) % len(WIDE)]
            problem = Problem(shape, dtype, form, -1 if form in WHOLE else axis)
            found.append(Case(problem, "tiled", len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return tuple(
        Case(
            Problem(shape, INPUT_DTYPES[turn % 4], form, -1 if form in WHOLE else axis),
            "finite",
            turn,
        )
        for turn, (form, (shape, axis)) in enumerate(itertools.product(FORMS, EMPTY))
    )
