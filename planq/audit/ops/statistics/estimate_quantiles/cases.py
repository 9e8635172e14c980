"""The fixed problems and inputs of `estimate_quantiles`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from planq.audit.ops.statistics.estimate_quantiles.reference import Problem, estimate_quantiles
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array
from planq.audit.reference.inputs import Chooser

KINDS = ("normal", "mixed", "patterns", "nonfinite", "finite", "zeros", "constant", "huge", "ties")
COUNTS = (1, 2, 3, 17, 100, 255, 256, 257, 510, 1000, 4096, 4097, 8191, 20000)
SHAPES = ((3, 5, 7), (40, 100), (300, 3), (1, 1, 1, 1, 1, 2, 3, 17), (2, 33, 130), (9, 2000))
WIDE = ((2**20,), (3, 70001), (40000, 12))
TAILS = (None, None, 0.0, 0.1, 0.499)


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
        return {"output": estimate_quantiles(self.problem, given["input"])}

    def parts(self) -> Iterator[Any]:
        """None: every element bears on every result."""
        return iter(())


def drawn(seed: int, shape: tuple[int, ...], dtype: str) -> Problem:
    """A problem whose remaining fields are drawn at random."""
    chooser = Chooser(seed)
    quantiles = chooser.pick((256, 256, 2, 3, 16, 100, 129, 255))
    tail, nonfinite = chooser.pick(TAILS), chooser.pick(("propagate", "saturate", "saturate"))
    return Problem(shape, dtype, quantiles, tail, nonfinite)


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input dtype and shape; the other choices are drawn."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for shape in (*((count,) for count in COUNTS), *SHAPES):
            for _ in range(2):
                seed = len(cases)
                kind = KINDS[(seed + seed // 7) % len(KINDS)]
                cases.append(Case(drawn(seed, shape, dtype), kind, seed))
        for shape in WIDE:
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, dtype), "tiled", seed))
    return tuple(cases)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for shape in ((0,), (0, 5), (5, 0), (3, 0, 4)):
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, dtype), "finite", seed))
    return tuple(cases)
