"""Sparse matrices as dataclasses of tensors, as the operators of the outlier family use them.

They compute nothing. `count` stays in device memory, so a list is passed on without waiting for its
length.
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
        count: The number of entries, int64 of shape (1,). It exceeds the length of the list if some
            entries did not fit.
    """

    shape: tuple[int, int]
    row_index: Tensor
    column_index: Tensor
    value: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CSR:
    """Compressed sparse rows: row ``r`` has the entries ``pointer[r]`` to ``pointer[r + 1] - 1``.

    Attributes:
        shape: Rows and columns of the matrix.
        pointer: Where the rows begin, and where the last one ends, int32 of shape (rows + 1,).
        column_index: The columns of the entries, int32.
        value: Their values.
    """

    shape: tuple[int, int]
    pointer: Tensor
    column_index: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CSC:
    """Compressed sparse columns: column ``c`` has ``pointer[c]`` to ``pointer[c + 1] - 1``.

    Attributes:
        shape: Rows and columns of the matrix.
        pointer: Where the columns begin, and where the last one ends, int32 of shape
            (columns + 1,).
        row_index: The rows of the entries, int32.
        value: Their values.
    """

    shape: tuple[int, int]
    pointer: Tensor
    row_index: Tensor
    value: Tensor
