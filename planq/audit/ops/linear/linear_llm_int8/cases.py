"""The fixed problems and inputs of `linear_llm_int8`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.linear.linear_llm_int8.reference import Problem, linear_llm_int8
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array, Arrays
from planq.audit.reference.inputs import Chooser, field, hashed

CODES = ("int8", "int8", "int8", "int4")
VALUES = ("float16", "bfloat16", "float32")
CAPACITIES = (8, 8, 3, 1, 0, 21)
# Rows and terms of whole vectors and of parts of them; few rows and many; one of everything; rows
# of several axes.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1, 64), 16),
    ((16, 128), 32),
    ((7, 48), 20),
    ((5, 33), 7),
    ((3, 2, 96), 33),
    ((2, 1, 3, 17), 5),
    ((1, 1), 1),
    ((40, 31), 65),
    ((20, 256), 130),
    ((4, 5, 64), 48),
)
WIDE = (((130, 320), 140), ((3, 2048), 260), ((300, 65), 40))
LISTS: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((16, 128), 32, 16),
    ((7, 48), 20, 3),
    ((2, 5, 144), 132, 65),
    ((1, 320), 261, 100),
    ((140, 320), 140, 70),
    ((260, 80), 129, 64),
)
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = (
    ((0, 5), 3),
    ((5, 0), 3),
    ((5, 4), 0),
    ((2, 0, 4), 3),
    ((0, 0), 0),
)


def values(shape: tuple[int, ...], dtype: str, seed: int, data: str = "normal") -> Array:
    """Elements of a kind."""
    return inputs.make(data, shape, dtype, seed)


def listed(problem: Problem, seed: int) -> tuple[Array, Array]:
    """Ascending columns and their number: fewer than there is room for, as many, or more."""
    terms, room = problem.input_shape[-1], problem.capacity
    count = (room, room // 2, room + 5, 0, room, min(room, 1))[seed % 6]
    held = min(count, room, terms)
    order = np.argsort(hashed(seed + 7, max(terms, 1)), kind="stable")[: min(held, terms)]
    index = np.full(room, -1, np.int32)
    index[:held] = np.sort(order)[:held]
    return index, np.array([count], np.int64)


@dataclass(frozen=True)
class Part:
    """Some rows of the input's first axis, as a problem of their own."""

    whole: Problem
    rows: slice

    @property
    def problem(self) -> Problem:
        """The rows alone."""
        count = self.rows.stop - self.rows.start
        return replace(self.whole, input_shape=(count, *self.whole.input_shape[1:]))

    def inputs(self, whole: Arrays) -> Arrays:
        """The rows of what has rows, and all of the rest."""
        by_row = ["input", "residual", "outlier"]
        by_row += ["input_scale"] if self.whole.input_scope == ("token",) else []
        return {
            name: np.ascontiguousarray(held[self.rows]) if name in by_row else held
            for name, held in whole.items()
        }

    def outputs(self, whole: Arrays) -> Arrays:
        """The rows of the output."""
        return {"output": np.ascontiguousarray(whole["output"][self.rows])}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    data: str = "normal"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Outputs."""
        return math.prod(self.problem.output_shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values."""
        return replace(self, seed=seed)

    def inputs(self) -> Arrays:
        """Input operands by name."""
        p, seed = self.problem, self.seed * 16
        index, count = listed(p, self.seed)
        rows = p.input_shape[:-1] if p.input_scope == ("token",) else (1,)
        columns = p.weight_shape[:1] if p.weight_scope == ("channel", 0) else (1,)
        given = {
            "input": codes(p.input_shape, p.input_dtype, seed + 1),
            "weight": codes(p.weight_shape, p.weight_dtype, seed + 2),
            "input_scale": np.abs(values(rows, p.stored_scale, seed + 3)),
            "weight_scale": np.abs(values(columns, p.stored_scale, seed + 4)),
            "index": index,
            "count": count,
            "outlier": values(
                (*p.input_shape[:-1], p.capacity), p.outlier_dtype, seed + 5, self.data
            ),
        }
        if p.bias_dtype:
            given["bias"] = values(p.weight_shape[:1], p.bias_dtype, seed + 6)
        if p.residual_dtype:
            given["residual"] = values(p.output_shape, p.residual_dtype, seed + 7)
        return given

    def expected(self, given: Arrays) -> Arrays:
        """The output by name."""
        return linear_llm_int8(self.problem, given)

    def parts(self) -> Iterator[Part]:
        """Some rows."""
        extent = self.problem.input_shape[0]
        step = max(-(-extent // 3), 1)
        for start in range(0, extent, step):
            yield Part(self.problem, slice(start, min(start + step, extent)))


def codes(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Codes of every value, as stored; a spare nibble holds something too."""
    stored = shape if dtype == "int8" else (*shape[:-1], -(-shape[-1] // 2))
    raw = field(hashed(seed, math.prod(stored)), 40, 8).astype(np.uint8).reshape(stored)
    return raw.view(np.int8) if dtype == "int8" else raw


def drawn(seed: int, shape: tuple[int, ...], columns: int, output_dtype: str) -> Problem:
    """A problem whose remaining fields are drawn at random."""
    chooser = Chooser(seed)
    return Problem(
        shape,
        (columns, shape[-1]),
        output_dtype,
        chooser.pick(CODES),
        chooser.pick(CODES),
        chooser.pick((("token",), ("token",), ("tensor",))),
        chooser.pick((("channel", 0), ("channel", 0), ("tensor",))),
        chooser.pick((None, None, *INPUT_DTYPES)),
        chooser.pick((None, None, *INPUT_DTYPES)),
        chooser.pick((None, None, None, *INPUT_DTYPES)),
        chooser.pick(CAPACITIES),
        chooser.pick(VALUES),
    )


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every output dtype and shape; the other choices are drawn."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for shape, columns in SHAPES:
            for _ in range(3):
                seed = len(cases)
                data = ("normal", "normal", "mixed", "huge")[(seed + seed // 5) % 4]
                cases.append(Case(drawn(seed, shape, columns, dtype), data, seed))
        for shape, columns in WIDE if dtype != "float64" else ():
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, columns, dtype), "normal", seed))
    return (*cases, *chains())


def chains() -> Iterator[Case]:
    """Of tensor cores: lists of less than a group, of groups and of parts of them."""
    capacities = itertools.cycle((16, 3, 21, 40, 0, 33, 1))
    values_of = itertools.cycle(VALUES[:2])
    kinds = itertools.cycle(("normal", "mixed", "normal", "huge", "patterns"))
    for seed, (shape, columns) in enumerate((*SHAPES, *WIDE)):
        problem = drawn(seed + 500, shape, columns, ("float32", "float16", "bfloat16")[seed % 3])
        problem = replace(
            problem,
            capacity=next(capacities),
            outlier_dtype=next(values_of),
            accumulation="tensor_sm90",
        )
        yield Case(problem, next(kinds), seed)
    # Codes and rows that warpgroups multiply, and lists longer than what they hold at a time.
    for number, (shape, columns, capacity) in enumerate(LISTS):
        problem = drawn(number + 600, shape, columns, INPUT_DTYPES[number % 3])
        problem = replace(
            problem,
            input_dtype="int8",
            weight_dtype="int8",
            capacity=capacity,
            outlier_dtype=next(values_of),
            accumulation="tensor_sm90",
        )
        yield Case(problem, next(kinds), 6 * number)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Products without outputs, or without terms."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for shape, columns in EMPTY:
            seed = len(cases)
            cases.append(Case(drawn(seed, shape, columns, dtype), "normal", seed))
    return tuple(cases)
