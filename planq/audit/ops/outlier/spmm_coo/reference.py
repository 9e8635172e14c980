"""`spmm_coo` in NumPy, written from the numeric contract alone: one entry after another.

A fused multiply-add of float32 is made in float64, where the product of two of the numbers here is
exact: the sum is rounded to odd there, so that the rounding to float32 is the only one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.entries import kept
from planq.audit.reference.formats import FLOATS, Array, narrowed


@dataclass(frozen=True)
class Problem:
    """A sparse matrix and a weight, in plain values."""

    shape: tuple[int, ...]
    capacity: int
    value_dtype: str
    weight_shape: tuple[int, int]
    weight_dtype: str
    output_dtype: str
    accumulate: bool = False
    transpose_weight: bool = False

    @property
    def rows(self) -> int:
        """Of the sparse matrix."""
        return math.prod(self.shape[:-1])

    @property
    def columns(self) -> int:
        """Of the output."""
        return self.weight_shape[1 if self.transpose_weight else 0]

    @cached_property
    def id(self) -> str:
        """A stable name."""
        flags = ",accumulate" * self.accumulate + ",transposed" * self.transpose_weight
        return (
            f"{'x'.join(map(str, self.shape))},n={self.columns},capacity={self.capacity},"
            f"{self.value_dtype}_{self.weight_dtype}_{self.output_dtype}{flags}"
        )


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32, rounded once."""
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        addend = c.astype(np.float64)
        total = product + addend
        # What the sum has lost (two-sum). A sum that is even and not exact goes to its odd
        # neighbour on the side of what was lost.
        back = total - product
        lost = (product - (total - back)) + (addend - back)
        odd = (total.view(np.int64) & 1) == 1
        towards = np.where(lost > 0, np.inf, -np.inf)
        moved = np.where((lost != 0) & ~odd, np.nextafter(total, towards), total)
        found = np.where(np.isfinite(total), moved, total).astype(np.float32)
    return np.asarray(found)


def spmm_coo(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's output."""
    f32 = np.float32
    weight = given["weight"] if problem.transpose_weight else given["weight"].T
    held = given["output"].reshape(problem.rows, problem.columns) if problem.accumulate else None
    stored = FLOATS[problem.output_dtype].dtype
    output = np.zeros((problem.rows, problem.columns), stored) if held is None else held.copy()
    sums: dict[int, Array] = {}
    for i in range(kept(given["count"], problem.capacity)):
        row, column = int(given["row_index"][i]), int(given["column_index"][i])
        if row >= problem.rows:
            continue
        t = sums.setdefault(row, np.zeros(problem.columns, f32))
        if 0 <= column < problem.shape[-1]:
            value = given["value"][i].astype(f32)
            sums[row] = fma(np.broadcast_to(value, t.shape), weight[column].astype(f32), t)
    with np.errstate(all="ignore"):
        for row, t in sums.items():
            u = t
            if problem.weight_dtype == "int8":
                u = (t * given["stats"]) * (f32(1) / f32(127))
            if held is not None:
                u = held[row].astype(f32) + u
            assert u.dtype == f32
            output[row] = narrowed(u, problem.output_dtype)
    return {"output": output.reshape(*problem.shape[:-1], problem.columns)}
