"""`double_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.matrices import maxima, outliers
from planq.audit.reference.formats import FLOATS, Array

TINY = np.float32(2.0**-126)
LIMIT = np.float32(127)


@dataclass(frozen=True)
class Problem:
    """A tensor, a threshold and room for outliers, in plain values."""

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    threshold: float = 0.0
    capacity: int = 0
    quotient: str = "divide"

    @cached_property
    def id(self) -> str:
        """A stable name."""
        shape = "x".join(map(str, self.shape))
        return (
            f"{shape},{self.input_dtype},threshold={self.threshold},"
            f"capacity={self.capacity},{self.quotient}"
        )


def codes(x: Array, listed: Array, absmax: Array, quotient: str) -> Array:
    """Of a matrix in float32, with the largest magnitude of each element's row or column."""
    one = np.float32(1)
    with np.errstate(all="ignore"):
        s = np.where(absmax == 0, one, np.maximum(absmax / LIMIT, TINY))
        if quotient == "divide":
            t = x / s
        elif quotient == "reciprocal":
            t = x * (one / s)
        else:
            t = x * np.where(absmax == 0, one, LIMIT / absmax)
        assert t.dtype == np.float32
        found = np.clip(np.rint(np.where(np.isnan(t), 0, t)), -LIMIT, LIMIT)
    return np.where(listed | ~np.isfinite(absmax), 0, found).astype(np.int8)


def listed_entries(problem: Problem, x: Array, listed: Array) -> dict[str, Array]:
    """The list of outliers, and how many there are."""
    rows, columns = np.nonzero(listed)  # row-major
    matrix = x.reshape(listed.shape)
    room = problem.capacity
    held = min(room, len(rows))
    row_index, column_index = np.full(room, -1, np.int32), np.full(room, -1, np.int32)
    value = np.zeros(room, FLOATS[problem.input_dtype].dtype)
    row_index[:held], column_index[:held] = rows[:held], columns[:held]
    value[:held] = matrix[rows[:held], columns[:held]]
    return {
        "row_index": row_index,
        "column_index": column_index,
        "value": value,
        "count": np.array([len(rows)], np.int64),
    }


def double_quantize(problem: Problem, x: Array) -> dict[str, Array]:
    """The operator's outputs by name."""
    listed = outliers(x, problem.threshold)
    row_absmax, column_absmax = (maxima(x, problem.threshold, axis) for axis in (1, 0))
    with np.errstate(invalid="ignore"):
        matrix = x.astype(np.float32).reshape(math.prod(x.shape[:-1]), x.shape[-1])
    by_rows = codes(matrix, listed, row_absmax[:, None], problem.quotient)
    by_columns = codes(matrix, listed, column_absmax[None], problem.quotient)
    return {
        "row_absmax": row_absmax.reshape(x.shape[:-1]),
        "column_absmax": column_absmax,
        "row_codes": by_rows.reshape(x.shape),
        "column_codes": by_columns.reshape(x.shape),
        **listed_entries(problem, x, listed),
    }
