"""The fixed problems and inputs of `llm_int8_quantize`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.ops.outlier.llm_int8_quantize.reference import Problem, llm_int8_quantize
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array
from planq.audit.reference.inputs import Chooser, field, hashed

DTYPES = ("float16", "bfloat16", "float32")
KINDS = ("planted", "planted", "planted", "full", "mixed", "nonfinite", "huge", "subnormal")
# Rows of whole vectors and of parts of them, shorter than a vector, of several pieces; one row,
# one column, many axes.
SHAPES = (
    (1, 64),
    (7, 48),
    (5, 33),
    (3, 5, 130),
    (33, 7),
    (17,),
    (1, 1),
    (64, 1),
    (2, 1, 3, 17),
    (1, 1, 1, 1, 1, 2, 3, 96),
    (4, 1024),
    (3, 1031),
    (40, 256),
)
WIDE = ((3, 33001), (700, 512), (1, 70000), (64, 8192), (130, 4097))
EMPTY = ((0,), (0, 5), (5, 0), (3, 0, 4), (0, 0), (2, 3, 0))
CAPACITIES = (8, 8, 64, 3, 1, 0, 200)


def planted(problem: Problem, seed: int, share: int = 16) -> Array:
    """Bell-shaped values, twenty times as large in some of the rows of one column in `share`."""
    count = math.prod(problem.shape)
    words = hashed(seed, count)
    columns = np.arange(count) % max(problem.shape[-1], 1)
    marked = hashed(seed + 1, problem.shape[-1] + 1)[columns] % np.uint64(share) == 0
    large = marked & (field(words, 60, 2) == 0)
    values = inputs.bell(words) * np.where(large, 20.0, 1.0)
    return inputs.rounded(values, FLOATS[problem.input_dtype]).reshape(problem.shape)


@dataclass(frozen=True)
class Case:
    """A problem with its input."""

    problem: Problem
    data: str = "planted"
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
        """The problem on other values of all kinds."""
        return replace(self, data=KINDS[seed % len(KINDS)], seed=seed)

    def inputs(self) -> dict[str, Array]:
        """The input by name."""
        if self.data in ("planted", "full"):
            return {"input": planted(self.problem, self.seed, 1 if self.data == "full" else 16)}
        problem = self.problem
        return {"input": inputs.make(self.data, problem.shape, problem.input_dtype, self.seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return llm_int8_quantize(self.problem, given["input"])

    def parts(self) -> Iterator[Any]:
        """None: every row bears on which columns are listed."""
        return iter(())


def drawn(seed: int, shape: tuple[int, ...], dtype: str) -> Problem:
    """A problem whose remaining fields are drawn at random."""
    chooser = Chooser(seed)
    return Problem(
        shape,
        dtype,
        chooser.pick((6.0, 6.0, 6.0, 2.5, 0.0, 0.7000000001, 1e-41)),
        chooser.pick(CAPACITIES),
        chooser.pick(("divide", "reciprocal", "ratio")),
        chooser.pick(("propagate", "saturate")),
    )


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input dtype and shape; the other choices are drawn."""
    cases: list[Case] = []
    for dtype in DTYPES:
        for shape in SHAPES:
            for _ in range(4):
                seed = len(cases)
                kind = KINDS[(seed + seed // 8) % len(KINDS)]
                cases.append(Case(drawn(seed, shape, dtype), kind, seed))
        for shape in WIDE:
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, dtype), "planted", seed))
    return tuple(cases)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements."""
    cases: list[Case] = []
    for dtype in DTYPES:
        for shape in EMPTY:
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, dtype), "planted", seed))
    return tuple(cases)
