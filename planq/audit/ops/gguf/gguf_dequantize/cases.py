"""The fixed problems of `gguf_dequantize`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from planq.audit.ops.elementwise.elements import TYPES, ElementCase
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.gguf_dequantize.reference import Problem, gguf_dequantize
from planq.audit.ops.gguf.inputs import made
from planq.audit.ops.gguf.shapes import EMPTY, shape_of
from planq.audit.reference.formats import Arrays
from planq.audit.reference.inputs import field, hashed

DATA = ("finite", "extreme", "bytes", "nonfinite", "zeros", "ones")


# Shapes of rows by index, in blocks, and how many rows there are to choose from.
TABLES = (((1,), 1, 3), ((5,), 2, 7), ((2, 3), 1, 1), ((33,), 1, 300), ((3,), 5, 40))
NO_ROWS = ((0,), 2, 3), ((3,), 0, 3), ((2, 0), 1, 9)


@dataclass(frozen=True)
class Index:
    """One index, with all of the blocks."""

    whole: Problem
    place: int
    is_outside: bool

    @property
    def problem(self) -> Problem:
        """Of one index."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: Arrays) -> Arrays:
        """The index."""
        return whole | {"index": whole["index"].reshape(-1)[self.place : self.place + 1]}

    def outputs(self, whole: Arrays) -> Arrays:
        """Its row. Whether it is outside is counted alone."""
        rows = whole["output"].reshape(-1, self.whole.shape[-1])
        return {
            "output": rows[self.place : self.place + 1],
            "invalid": np.array([self.is_outside], np.int64),
        }


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its blocks."""

    data: str = "finite"

    def reseeded(self, seed: int) -> Case:
        """Other blocks, of another kind."""
        return replace(self, data=DATA[seed % len(DATA)], seed=seed + 1000)

    def inputs(self) -> Arrays:
        """Bytes, and which rows are asked for, most of which are there."""
        problem = self.problem
        given = {"input": made(problem.format, problem.input_shape, self.data, self.seed)}
        if problem.table_rows is None:
            return given
        words, rows = hashed(self.seed + 1, math.prod(problem.shape[:-1])), problem.table_rows
        inside = (words % np.uint64(rows)).astype(np.int64)
        others = (-1 - inside, rows + inside, words.view(np.int64), inside + 2**32)
        index = np.choose(field(words, 40, 3), (inside,) * 4 + others)
        own = index.astype(problem.index_dtype or "int64")
        return given | {"index": own.reshape(problem.shape[:-1])}

    def parts(self) -> Iterator[Any]:
        """Rows, or indices with all of the blocks."""
        if self.problem.table_rows is None:
            return super().parts()
        index = self.inputs()["index"].reshape(-1).astype(np.int64)
        rows = self.problem.table_rows
        return (Index(self.problem, i, not 0 <= own < rows) for i, own in enumerate(index))

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return gguf_dequantize(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every type with every output, finite and of two other kinds; so each type has all kinds."""
    found: list[Case] = []
    others = DATA[1:]
    for turn, (kind, out) in enumerate(itertools.product(FORMATS, TYPES)):
        for data in ("finite", others[turn % 5], others[(turn + 3) % 5]):
            shape = shape_of(len(found), FORMATS[kind].elements)
            found.append(Case(Problem(shape, kind, out), data, len(found)))
    return (*found, *rows_by_index(TABLES, len(found)))


def rows_by_index(sizes: tuple[Any, ...], seed: int) -> Iterator[Case]:
    """Of every type."""
    for turn, kind in enumerate(FORMATS):
        rows, blocks, table = sizes[turn % len(sizes)]
        shape = (*rows, blocks * FORMATS[kind].elements)
        index_dtype = ("int64", "int32")[turn % 2]
        problem = Problem(shape, kind, TYPES[turn // 2 % len(TYPES)], table, index_dtype)
        yield Case(problem, DATA[turn % len(DATA)], seed + turn)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows, and rows without blocks."""
    whole = (
        Case(Problem(EMPTY[place % len(EMPTY)], kind, TYPES[place % len(TYPES)]))
        for place, kind in enumerate(FORMATS)
    )
    return (*whole, *rows_by_index(NO_ROWS, 0))
