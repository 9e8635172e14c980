"""The fixed problems and inputs of `embedding`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.gather.embedding.reference import Problem, embedding
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays
from planq.audit.reference.inputs import Chooser, field, hashed

ELEMENTS = ("float16", "bfloat16", "float32")
TABLES = (*ELEMENTS, "int8", "int4")
# Where indices are: all over, all the same, in turn; some of them outside, by little, by any bits
# and by what is lost in 32 bits; none inside.
KINDS = ("spread", "one", "in_turn", "outside", "any_bits", "wrapped", "none")
DATA = ("finite", "normal", "nonfinite", "patterns", "subnormal", "huge", "mixed")
FACTORS = (1.0, 1.0, 73.32121111929344, 0.5, -1e-40, 3e38, 0.0, math.inf, math.nan, 1e300)
# Indices and width, rows of the table. Rows are whole vectors and are not, of less than a warp's
# and of more than a block reads at once; indices are as few as one block counts, and more.
SIZES = (
    ((1, 1), 1),
    ((1, 4096), 5),
    ((3, 17), 4),
    ((2, 3, 24), 9),
    ((5, 96), 40),
    ((16, 5376), 30),
    ((33, 100), 7),
    ((128, 256), 50),
    ((2, 2, 2, 33), 3),
    ((700, 16), 1000),
    ((9000, 8), 33),
    ((20000, 3), 5),
    ((4, 10248), 6),
)
EMPTY = (((0, 8), 3), ((3, 0), 3), ((3, 8), 0), ((0, 0), 0), ((2, 0, 64), 2))
GROUPS = (8, 32, 128, 1, 3, 5, 20, 10**12)


@dataclass(frozen=True)
class Index:
    """One index, with all of the table."""

    whole: Problem
    place: int
    is_outside: bool

    @property
    def problem(self) -> Problem:
        """Of one index."""
        return replace(self.whole, shape=(1, self.whole.width))

    def inputs(self, whole: Arrays) -> Arrays:
        """The index."""
        own = whole["index"].reshape(-1)[self.place : self.place + 1]
        return whole | {"index": own}

    def outputs(self, whole: Arrays) -> Arrays:
        """Its row. Whether it is outside is counted alone."""
        rows = whole["output"].reshape(self.whole.count, self.whole.width)
        return {
            "output": rows[self.place : self.place + 1],
            "invalid": np.array([self.is_outside], np.int64),
        }


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "spread"
    data: str = "finite"
    factor: float = 1.0
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        own = f"{self.kind},data={self.data},factor={self.factor},seed={self.seed}"
        return f"{self.problem.id},{own}"

    @property
    def size(self) -> int:
        """Elements of the output and of the table."""
        return math.prod(self.problem.shape) + self.problem.table_rows * self.problem.width

    def reseeded(self, seed: int) -> Case:
        """Other indices and other values."""
        return replace(self, kind=KINDS[seed % len(KINDS)], seed=seed + 1000)

    def index(self) -> Array:
        """Which row goes where."""
        problem = self.problem
        words, rows = hashed(self.seed + 1, problem.count), problem.table_rows
        spread = (words % np.uint64(max(rows, 1))).astype(np.int64)
        outside = field(words, 40, 2)
        if self.kind == "one":
            spread = np.full_like(spread, rows // 2)
        elif self.kind == "in_turn":
            spread = np.arange(problem.count) % max(rows, 1)
        elif self.kind == "outside":
            spread = np.choose(outside, (spread, -1 - spread, rows + spread, spread))
        elif self.kind == "any_bits":
            spread = np.where(outside == 0, words.view(np.int64), spread)
        elif self.kind == "wrapped":
            spread = np.where(outside == 0, spread + 2**32, spread)
        elif self.kind == "none":
            spread = np.where(outside == 0, rows, -1 - spread)
        return spread.astype(problem.index_dtype).reshape(problem.shape[:-1])

    def _table(self) -> Array:
        problem = self.problem
        shape = (problem.table_rows, problem.width)
        if not problem.has_codes:
            return inputs.make(self.data, shape, problem.table_dtype, self.seed)
        if problem.table_dtype == "int4":
            shape = (shape[0], -(-shape[1] // 2))
        codes = field(hashed(self.seed, math.prod(shape)), 3, 8).astype(np.uint8)
        return codes.view(STORAGE[problem.table_dtype]).reshape(shape)

    def inputs(self) -> Arrays:
        """A table, indices and a factor."""
        problem = self.problem
        given = {
            "table": self._table(),
            "index": self.index(),
            "factor": np.array(self.factor, np.float64),
        }
        if problem.has_codes:
            shape, dtype = problem.scale_shape, problem.scale_dtype
            given["scale"] = inputs.make(self.data, shape, dtype, self.seed + 2)
        return given

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        return embedding(self.problem, given)

    def parts(self) -> Iterator[Index]:
        """Indices."""
        index, rows = self.index().reshape(-1).astype(np.int64), self.problem.table_rows
        return (Index(self.problem, i, not 0 <= own < rows) for i, own in enumerate(index))


def _problem(chooser: Chooser, size: tuple[tuple[int, ...], int], table: str, out: str) -> Problem:
    groups = ("group", chooser.pick(GROUPS))
    codes = table not in ELEMENTS
    return Problem(
        *size,
        table,
        out,
        chooser.pick(("int64", "int32")),
        chooser.pick((("token",), groups, groups)) if codes else ("token",),
        chooser.pick(ELEMENTS) if codes else "float32",
        chooser.pick(("low_first", "high_first")) if table == "int4" else "low_first",
    )


def _cases(sizes: tuple[tuple[tuple[int, ...], int], ...]) -> tuple[Case, ...]:
    found: list[Case] = []
    for size, table, out in itertools.product(sizes, TABLES, ELEMENTS):
        seed = len(found)
        chooser = Chooser(seed)
        problem = _problem(chooser, size, table, out)
        kind, data = KINDS[(seed + seed // 7) % len(KINDS)], DATA[(seed + seed // 7) % len(DATA)]
        found.append(Case(problem, kind, data, chooser.pick(FACTORS), seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every size with every pair of types."""
    return _cases(SIZES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No indices, rows without elements, and a table without rows."""
    return _cases(EMPTY)
