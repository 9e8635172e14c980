"""Sparse matrices as dataclasses of tensors: what the operators of outliers read and write.

They hold what they are given and compute nothing. `count` stays where the operators wrote it: a
list is passed on without that anybody waits for its length.
"""

from __future__ import annotations

from dataclasses import dataclass

from planq.arguments import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class COO:
    """A list of entries, row by row and each row by ascending columns.

    Attributes:
        shape: Rows and columns of the matrix.
        row_index: The rows of the entries, int32; -1 beyond the last one.
        column_index: Their columns, likewise.
        value: Their values; 0 beyond the last one.
        count: How many entries there are, int64 of shape (1,). More than the list has places for
            where some did not fit.
    """

    shape: tuple[int, int]
    row_index: Tensor
    column_index: Tensor
    value: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CSR:
    """The entries of row ``r`` have the places ``pointer[r]`` to ``pointer[r + 1] - 1``.

    Attributes:
        shape: Rows and columns of the matrix.
        pointer: Where the rows begin, and where the last one ends, int32.
        column_index: The columns of the entries, int32.
        value: Their values.
    """

    shape: tuple[int, int]
    pointer: Tensor
    column_index: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CSC:
    """The entries of column ``c`` have the places ``pointer[c]`` to ``pointer[c + 1] - 1``.

    Attributes:
        shape: Rows and columns of the matrix.
        pointer: Where the columns begin, and where the last one ends, int32.
        row_index: The rows of the entries, int32.
        value: Their values.
    """

    shape: tuple[int, int]
    pointer: Tensor
    row_index: Tensor
    value: Tensor
