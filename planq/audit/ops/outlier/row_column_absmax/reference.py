"""`row_column_absmax` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.matrices import TILE, maxima, outliers
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem:
    """A tensor and a threshold, in plain values."""

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    threshold: float = 0.0

    @cached_property
    def id(self) -> str:
        """A stable name."""
        shape = "x".join(map(str, self.shape))
        return f"{shape},{self.input_dtype},threshold={self.threshold}"

    @property
    def tiles(self) -> int:
        """Across a row."""
        return -(-self.shape[-1] // TILE)


def tile_counts(problem: Problem, x: Array) -> Array:
    """Outliers of each row in each tile."""
    rows = math.prod(problem.shape[:-1])
    found = outliers(x, problem.threshold)
    filled = np.zeros((rows, problem.tiles * TILE), bool)
    filled[:, : problem.shape[-1]] = found
    counts = filled.reshape(rows, problem.tiles, TILE).sum(axis=2)
    return counts.astype(np.int32).reshape(*problem.shape[:-1], problem.tiles)


def row_column_absmax(problem: Problem, x: Array) -> dict[str, Array]:
    """The operator's outputs by name."""
    return {
        "row_absmax": maxima(x, problem.threshold, 1).reshape(problem.shape[:-1]),
        "column_absmax": maxima(x, problem.threshold, 0),
        "tile_count": tile_counts(problem, x),
    }
