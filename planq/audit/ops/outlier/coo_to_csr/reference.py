"""`coo_to_csr` in NumPy: count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.entries import kept
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem:
    """A matrix and room for entries."""

    shape: tuple[int, ...]
    capacity: int

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return math.prod(self.shape[:-1])

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{'x'.join(map(str, self.shape))},capacity={self.capacity}"


def coo_to_csr(problem: Problem, row_index: Array, count: Array) -> dict[str, Array]:
    """The operator's outputs by name."""
    listed = row_index[: kept(count, problem.capacity)]
    of_rows = np.bincount(listed, minlength=problem.rows)[: problem.rows]
    pointer = np.concatenate([[0], np.cumsum(of_rows)])
    return {"pointer": pointer.astype(np.int32)}
