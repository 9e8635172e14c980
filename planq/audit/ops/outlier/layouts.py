"""Layouts in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import hashed

LAYOUTS = ("row", "col", "col32", "col_turing", "col_ampere")
DTYPES = ("int8", "int32")


def rounded_up(count: int, unit: int) -> int:
    """To a multiple."""
    return -(-count // unit) * unit


def buffer_shape(layout: str, rows: int, columns: int) -> tuple[int, int]:
    """The memory of a matrix."""
    if layout in ("row", "col"):
        return (rows, columns) if layout == "row" else (columns, rows)
    unit = {"col32": 1, "col_turing": 8, "col_ampere": 32}[layout]
    return rounded_up(rows, unit), rounded_up(columns, 32)


@lru_cache(maxsize=64)
def positions(layout: str, rows: int, columns: int) -> Array:
    """Where element (r, c) lies."""
    r, c = np.indices((rows, columns))
    if layout == "row":
        return r * columns + c
    if layout == "col":
        return c * rows + r
    panel = c // 32 * 32
    if layout == "col32":
        return panel * rows + r * 32 + c % 32
    if layout == "col_turing":
        tile = panel * rounded_up(rows, 8) + r // 8 * 256
        return tile + r % 2 * 128 + c % 32 // 4 * 16 + r % 8 // 2 * 4 + c % 4
    s = r % 32
    line = s % 8 // 2 * 8 + s // 8 * 2 + s % 2
    return panel * rounded_up(rows, 32) + r // 32 * 1024 + line * 32 + c % 32


def matrix_of(layout: str, buffer: Array, rows: int, columns: int) -> Array:
    """The matrix that memory holds."""
    return np.asarray(buffer.reshape(-1)[positions(layout, rows, columns)])


def memory_of(layout: str, matrix: Array) -> Array:
    """The memory that holds a matrix, with 0 where no element lies."""
    buffer = np.zeros(buffer_shape(layout, *matrix.shape), matrix.dtype)
    buffer.reshape(-1)[positions(layout, *matrix.shape)] = matrix
    return buffer


def flat_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """All axes but the last are rows."""
    return math.prod(shape[:-1]), shape[-1]


def random_integers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Integers of every value of the type."""
    words = hashed(seed, math.prod(shape)) >> np.uint64(32)
    return words.astype(np.uint32).astype(dtype.replace("int", "uint")).view(dtype).reshape(shape)
