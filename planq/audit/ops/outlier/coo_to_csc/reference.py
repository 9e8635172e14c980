"""`coo_to_csc` in NumPy: a stable sort by columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.entries import kept
from planq.audit.reference.formats import FLOATS, Array


@dataclass(frozen=True)
class Problem:
    """A matrix, room for entries and the type of their values."""

    shape: tuple[int, ...]
    capacity: int
    value_dtype: str = "float16"

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return math.prod(self.shape[:-1])

    @cached_property
    def id(self) -> str:
        """A stable name."""
        shape = "x".join(map(str, self.shape))
        return f"{shape},capacity={self.capacity},{self.value_dtype}"


def coo_to_csc(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's outputs by name."""
    held = kept(given["count"], problem.capacity)
    columns = given["column_index"][:held].astype(np.int64)
    inside = np.flatnonzero((columns >= 0) & (columns < problem.shape[-1]))
    order = inside[np.argsort(columns[inside], kind="stable")]
    of_columns = np.bincount(columns[order], minlength=problem.shape[-1])
    row_index = np.full(problem.capacity, -1, np.int32)
    value = np.zeros(problem.capacity, FLOATS[problem.value_dtype].dtype)
    row_index[: len(order)] = given["row_index"][order]
    value[: len(order)] = given["value"][order]
    return {
        "pointer": np.concatenate([[0], np.cumsum(of_columns)]).astype(np.int32),
        "output_row_index": row_index,
        "output_value": value,
    }
