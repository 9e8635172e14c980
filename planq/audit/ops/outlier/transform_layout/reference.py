"""`transform_layout` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from planq.audit.ops.outlier.layouts import buffer_shape, flat_shape, matrix_of, memory_of
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem:
    """A matrix on its way from one layout to another."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    from_layout: str = "row"
    to_layout: str = "row"
    transpose: bool = False

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns that come in."""
        return flat_shape(self.shape)

    @property
    def result(self) -> tuple[int, int]:
        """Rows and columns that come out."""
        rows, columns = self.matrix
        return (columns, rows) if self.transpose else (rows, columns)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the input."""
        return (
            self.shape
            if self.from_layout == "row"
            else buffer_shape(self.from_layout, *self.matrix)
        )

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the output."""
        if self.to_layout == "row" and not self.transpose:
            return self.shape
        return buffer_shape(self.to_layout, *self.result)

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        shape = "x".join(map(str, self.shape))
        turned = ",transposed" if self.transpose else ""
        return f"{shape},{self.dtype},{self.from_layout}-{self.to_layout}{turned}"


def transform(problem: Problem, buffer: Array) -> Array:
    """Out of the one, into the other."""
    matrix = matrix_of(problem.from_layout, buffer, *problem.matrix)
    return memory_of(problem.to_layout, matrix.T if problem.transpose else matrix).reshape(
        problem.output_shape
    )
