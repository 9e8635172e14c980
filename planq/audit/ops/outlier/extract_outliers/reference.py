"""`extract_outliers` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.outlier.layouts import buffer_shape, flat_shape, matrix_of
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem:
    """Columns of a matrix in a layout, and how many of them there is room for."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    layout: str = "row"
    capacity: int = 4

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns."""
        return flat_shape(self.shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the matrix in memory."""
        return self.shape if self.layout == "row" else buffer_shape(self.layout, *self.matrix)

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        shape = "x".join(map(str, self.shape))
        return f"{shape},{self.dtype},{self.layout},capacity={self.capacity}"


def extract(problem: Problem, given: dict[str, Array]) -> Array:
    """Listed columns one after another; 0 where the list ends or names none."""
    rows, columns = problem.matrix
    matrix = matrix_of(problem.layout, given["input"], rows, columns)
    output = np.zeros((rows, problem.capacity), problem.dtype)
    for j in range(min(problem.capacity, max(int(given["count"][0]), 0))):
        if 0 <= (c := int(given["index"][j])) < columns:
            output[:, j] = matrix[:, c]
    return output.reshape(*problem.shape[:-1], problem.capacity)
