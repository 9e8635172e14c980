"""Lists of entries: inputs of the operators that read them, and what of a list counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.reference import inputs
from planq.audit.reference.formats import Array

KINDS = ("spread", "one_row", "one_column", "dense", "none", "over", "outside", "last")
# What stands behind the last entry, which nobody may look at.
BEYOND = 0x7FFFFFF0


@dataclass(frozen=True)
class Entries:
    """A list for a matrix of so many rows and columns."""

    row_index: Array
    column_index: Array
    count: Array


def places(rows: int, columns: int, capacity: int, kind: str, seed: int) -> Array:
    """Linear indices of the entries, ascending, at most `capacity` of them."""
    words = inputs.hashed(seed, max(capacity, 1)).astype(object)
    if kind == "none" or rows * columns == 0:
        return np.zeros(0, np.int64)
    if kind == "one_row":
        found = {int(rows // 2 * columns + w % columns) for w in words}
    elif kind == "one_column":
        found = {int(w % rows * columns + columns // 3) for w in words}
    elif kind == "dense":
        found = set(range(min(capacity, rows * columns)))
    elif kind == "last":
        found = {rows * columns - 1}
    else:
        found = {int(w % (rows * columns)) for w in words}
    return np.array(sorted(found)[:capacity], np.int64)


def make(rows: int, columns: int, capacity: int, kind: str, seed: int) -> Entries:
    """A list of this kind.

    `over` says that there were more than fit, `outside` has columns that the matrix has not.
    """
    linear = places(rows, columns, capacity, kind, seed)
    row_index = np.full(capacity, BEYOND, np.int32)
    column_index = np.full(capacity, BEYOND, np.int32)
    held = len(linear)
    if held:
        row_index[:held], column_index[:held] = np.divmod(linear, columns)
    if kind == "outside":
        column_index[:held:3] = -1
        column_index[1:held:5] = columns
    count = held
    if kind == "over" and held:
        row_index[held:] = row_index[held - 1]
        column_index[held:] = columns - 1
        count = 3 * capacity + 2**33
    return Entries(row_index, column_index, np.array([count], np.int64))


def kept(count: Array, capacity: int) -> int:
    """How many entries of a list count."""
    return max(0, min(int(count[0]), capacity))
