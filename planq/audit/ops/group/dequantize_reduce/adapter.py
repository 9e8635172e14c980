"""`dequantize_reduce` for the tests that are generated from the registry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import planq
from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.group.dequantize_reduce.reference import DequantizeReduceProblem
from planq.audit.ops.group.reference import FEEDBACK
from planq.audit.reference.formats import Array, Arrays

VECTOR = 16  # codes that are added together
PARTS = 3
# A shape, groups of the input and of the output, and ranks.
PLACES: tuple[tuple[tuple[int, ...], int, int | None, int], ...] = (
    ((4, 64), 32, None, 2),
    ((3, 35), 7, 15, 3),
    ((2, 2048), 256, 2048, 8),
    ((1000,), 33, 500, 1),
    ((8, 96), 16, 48, 5),
    ((2049,), 2049, 1000, 4),
    ((64,), 64, 16, 64),
    ((31,), 100, 3, 16),
)
EMPTY: tuple[tuple[tuple[int, ...], int, int | None, int], ...] = (
    ((0,), 4, 2, 2),
    ((3, 0), 8, None, 3),
)


@dataclass(frozen=True)
class Part:
    """Consecutive groups of both sides, as a problem of their own."""

    whole: DequantizeReduceProblem
    first: int
    last: int

    @property
    def problem(self) -> DequantizeReduceProblem:
        """The part alone, as a flat tensor."""
        return replace(self.whole, shape=(self.last - self.first,))

    def cut(self, values: Array, size: int) -> Array:
        """Of rows that have one for `size` elements each."""
        return np.ascontiguousarray(values[..., self.first // size : -(-self.last // size)])

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's codes and parameters."""
        problem = self.whole
        parameters = np.moveaxis(whole["parameters"], 1, -1)
        cut = self.cut(parameters, problem.group_size)
        made = {
            "input": self.cut(whole["input"], 2 if problem.input_dtype == "int4" else 1),
            "parameters": np.ascontiguousarray(np.moveaxis(cut, -1, 1)),
        }
        return made | self.errors(whole)

    def errors(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's errors, before or after."""
        return {"error": self.cut(whole["error"], 1)} if "error" in whole else {}

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        problem = self.whole
        size = problem.output_group_size or problem.group_size
        pairs = 2 if problem.output_dtype == "int4" else 1
        made = {"output": self.cut(whole["output"].reshape(-1), pairs)}
        if "output_parameters" in whole:
            cut = self.cut(whole["output_parameters"].T, size)
            made["output_parameters"] = np.ascontiguousarray(cut.T)
        return made | self.errors(whole)


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: DequantizeReduceProblem
    kind: str = "ordinary"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return self.problem.count

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return Case(self.problem, "any" if seed % 3 == 0 else "ordinary", seed)

    def inputs(self) -> Arrays:
        """Input operands by name."""
        return self.problem.inputs(self.kind, self.seed)

    def expected(self, given: Arrays) -> Arrays:
        """Output operands by name, as stored."""
        return self.problem.expected(given)

    def parts(self) -> Iterator[Part]:
        """Runs of whole groups that share no byte."""
        problem = self.problem
        unit = math.lcm(2, problem.group_size, problem.output_group_size or 1)
        step = max(-(-self.size // (unit * PARTS)), 1) * unit
        for first in range(0, self.size, step):
            yield Part(problem, first, min(first + step, self.size))


def cases_of(
    places: tuple[tuple[tuple[int, ...], int, int | None, int], ...],
) -> tuple[Case, ...]:
    """Every type of codes and of outputs at every place; the other choices take turns."""
    found = []
    outputs = (None, "float16", "bfloat16", "float32")
    for seed, (place, codes, output) in enumerate(
        itertools.product(places, ("int8", "int4"), outputs)
    ):
        shape, size, output_size, ranks = place
        problem = DequantizeReduceProblem(
            shape=shape,
            ranks=ranks,
            input_dtype=codes,
            output_dtype=output or codes,
            group_size=size,
            output_group_size=None if output else output_size,
            mode=("symmetric", "asymmetric")[(seed + seed // 4) % 2],
            mean=seed % 3 == 0,
            sum_dtype=("float32", "float32", "float16")[seed // 2 % 3],
        )
        found.append(Case(problem, "any" if seed % 4 == 1 else "ordinary", seed))
    return tuple(found)


def feedback_cases_of(
    places: tuple[tuple[tuple[int, ...], int, int | None, int], ...],
) -> tuple[Case, ...]:
    """Both types of codes at every place, with error feedback."""
    found = []
    for seed, (place, codes) in enumerate(itertools.product(places, ("int8", "int4"))):
        shape, size, output_size, ranks = place
        feedback: dict[str, Any] = FEEDBACK[(seed + seed // 4) % len(FEEDBACK)]
        problem = DequantizeReduceProblem(
            shape=shape,
            ranks=ranks,
            input_dtype=codes,
            output_dtype=codes,
            group_size=size,
            output_group_size=output_size,
            mode=("symmetric", "asymmetric")[seed // 2 % 2],
            mean=seed % 3 == 0,
            **feedback,
        )
        found.append(Case(problem, "any" if seed % 5 == 1 else "ordinary", seed))
    return tuple(found)


@dataclass(frozen=True)
class DequantizeReduceTests(ReferenceTests):
    """`dequantize_reduce` against its NumPy reference."""

    without_dims = "*"  # flat groups go across the ends of rows

    @cached_property
    def _found(self) -> tuple[Case, ...]:
        return cases_of(PLACES) + feedback_cases_of(PLACES)

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self._found

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases_of(EMPTY) + feedback_cases_of(EMPTY)

    def accumulator(self, problem: Any) -> planq.DType:
        """What sums are rounded to at every step."""
        return planq.DType(problem.sum_dtype)

    def variety(self, problem: Any) -> str:
        """Whether groups are whole vectors."""
        sizes = (problem.count, problem.group_size, problem.output_group_size or VECTOR)
        return "vectors" if all(size % VECTOR == 0 for size in sizes) else "edges"


TESTS = DequantizeReduceTests("dequantize_reduce")
