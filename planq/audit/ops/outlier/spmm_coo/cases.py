"""The fixed problems and inputs of `spmm_coo`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.outlier import entries
from planq.audit.ops.outlier.entries import KINDS, kept
from planq.audit.ops.outlier.matrices import ELEMENTS
from planq.audit.ops.outlier.spmm_coo.reference import Problem, spmm_coo
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import Chooser

WEIGHTS = ("float16", "bfloat16", "int8")
# Rows and k, the columns of the output, the room.
SIZES = (
    ((1, 1), 1, 1),
    ((7,), 3, 5),
    ((3, 5), 8, 7),
    ((4, 40), 64, 90),
    ((17, 33), 33, 40),
    ((2, 3, 24), 136, 60),
    ((33, 300), 264, 200),
    ((5, 129), 1027, 140),
    ((300, 16), 40, 256),
    ((6, 70), 2056, 33),
)
EMPTY = (((0, 5), 4, 3), ((5, 0), 4, 3), ((5, 4), 0, 3), ((3, 4), 5, 0), ((0,), 0, 0))
DATA = ("finite", "normal", "nonfinite", "patterns", "subnormal")


@dataclass(frozen=True)
class Rows:
    """One row of the output: its entries alone."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """With the same room."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The row's entries first, in their order; nothing counts behind them."""
        held = kept(whole["count"], self.whole.capacity)
        own = np.flatnonzero(whole["row_index"][:held] == self.row)
        order = np.concatenate([own, np.setdiff1d(np.arange(self.whole.capacity), own)])
        moved = {name: whole[name][order] for name in ("row_index", "column_index", "value")}
        moved["row_index"][: len(own)] = 0
        part = {**whole, **moved, "count": np.array([len(own)], np.int64)}
        return {**part, **self.outputs(whole)} if self.whole.accumulate else part

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its row."""
        rows = whole["output"].reshape(self.whole.rows, self.whole.columns)
        return {"output": rows[self.row : self.row + 1]}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "spread"
    data: str = "finite"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},{self.kind},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the output and of the weight."""
        problem = self.problem
        return problem.rows * problem.columns + problem.columns * problem.shape[-1]

    def reseeded(self, seed: int) -> Case:
        """Another list and other values."""
        return replace(self, kind=KINDS[seed], seed=seed + 1000)

    def inputs(self) -> dict[str, Array]:
        """The list and the weight, and what is added to."""
        problem, seed = self.problem, self.seed
        made = entries.make(problem.rows, problem.shape[-1], problem.capacity, self.kind, self.seed)
        given = {
            "row_index": made.row_index,
            "column_index": made.column_index,
            "value": inputs.make(self.data, (problem.capacity,), problem.value_dtype, seed),
            "count": made.count,
        }
        if problem.weight_dtype == "int8":
            words = inputs.hashed(seed + 1, int(np.prod(problem.weight_shape)))
            codes = inputs.field(words, 9, 8).astype(np.uint8).view(np.int8)
            given["weight"] = codes.reshape(problem.weight_shape)
            given["stats"] = inputs.make("normal", (problem.columns,), "float32", seed + 2)
        else:
            given["weight"] = inputs.make(
                self.data, problem.weight_shape, problem.weight_dtype, seed + 1
            )
        if problem.accumulate:
            shape = (*problem.shape[:-1], problem.columns)
            given["output"] = inputs.make("mixed", shape, problem.output_dtype, seed + 3)
        return given

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return spmm_coo(self.problem, given)

    def parts(self) -> Iterator[Rows]:
        """Rows."""
        return (Rows(self.problem, row) for row in range(self.problem.rows))


def _cases(sizes: tuple[tuple[tuple[int, ...], int, int], ...], turns: int) -> tuple[Case, ...]:
    found: list[Case] = []
    for weight in WEIGHTS:
        for shape, columns, room in sizes:
            for turn in range(turns):
                seed = len(found)
                chooser = Chooser(seed)
                transposed, accumulate = chooser.pick((True, False)), chooser.pick((True, False))
                k = shape[-1]
                problem = Problem(
                    shape,
                    room,
                    chooser.pick(ELEMENTS),
                    (k, columns) if transposed else (columns, k),
                    weight,
                    ELEMENTS[(turn + seed // turns) % 3],
                    accumulate,
                    transposed,
                )
                kind = KINDS[(seed + seed // 8) % len(KINDS)]
                found.append(Case(problem, kind, chooser.pick(DATA), seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every weight and size, with every output type; the other choices are drawn."""
    return _cases(SIZES, 6)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Matrices without elements, weights without columns, lists without room."""
    return _cases(EMPTY, 3)
