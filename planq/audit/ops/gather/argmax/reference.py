"""`argmax` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True)
class Problem:
    """Rows of elements."""

    shape: tuple[int, ...]
    input_dtype: str
    output_dtype: str = "int64"

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(self.shape[:-1])

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{'x'.join(map(str, self.shape))},{self.input_dtype}_{self.output_dtype}"


def first(marks: Array) -> int:
    """The lowest index of a mark."""
    return int(np.flatnonzero(marks)[0])


def argmax(problem: Problem, given: Arrays) -> Arrays:
    """The first NaN of a row, or else the first of its elements that equal the largest."""
    rows = given["input"].reshape(problem.count, problem.shape[-1]).astype(np.float32)
    found = np.empty(problem.count, problem.output_dtype)
    for number, row in enumerate(rows):
        nan = np.isnan(row)
        found[number] = first(nan) if nan.any() else first(row == row.max())
    return {"output": found.reshape(problem.shape[:-1])}
