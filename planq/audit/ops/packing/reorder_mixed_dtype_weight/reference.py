"""The order of CUTLASS's mixed-dtype weights in NumPy, from its closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import Array, pack_nibbles, unpack_nibbles


@dataclass(frozen=True)
class Problem:
    """A weight of `shape` (K, N), and which way it goes."""

    shape: tuple[int, int]
    dtype: str = "int8"
    transpose: bool = False
    inverse: bool = False

    @property
    def bits(self) -> int:
        """Of an element."""
        return 8 if self.dtype == "int8" else 4

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The plain matrix as it is stored."""
        rows, columns = self.shape[::-1] if self.transpose else self.shape
        return rows, columns * self.bits // 8

    @property
    def reordered_shape(self) -> tuple[int, int]:
        """The reordered weight as it is stored."""
        return self.shape[0], self.shape[1] * self.bits // 8

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        rows, columns = self.shape
        flags = f"{',transpose' * self.transpose}{',inverse' * self.inverse}"
        return f"{rows}x{columns},{self.dtype}{flags}"


def fields_of(problem: Problem) -> Array:
    """For every (k, n), which of the 8- or 4-bit fields of the reordered weight is its own."""
    rows, columns = problem.shape
    k, n = np.arange(rows)[:, None], np.arange(columns)[None, :]
    if problem.bits == 8:
        i = k % 16
        kappa = 16 * (k // 16) + 4 * (i // 2 % 4) + 2 * (i // 8) + i % 2
        c, e = kappa // 4, kappa % 4
        word = n // 2 * (rows // 2) + c // 16 * 32 + n % 2 * 16 + c % 16
        return np.asarray(4 * word + np.array([0, 2, 1, 3])[e])
    j, half = k // 2, k % 2
    moved = 16 * (j // 16) + 4 * (j % 4) + j % 16 // 4
    c, e = moved // 4, 2 * (moved % 4) + half
    word = n // 4 * (rows // 2) + c // 8 * 32 + n % 4 * 8 + c % 8
    return np.asarray(8 * word + e // 2 + 4 * (e % 2))


def shifted(problem: Problem, elements: Array) -> Array:
    """Half the range added, modulo the range."""
    half = 2 ** (problem.bits - 1)
    return ((elements.astype(np.int64) + half) % (2 * half)).astype(np.uint8)


def reorder(problem: Problem, matrix: Array) -> Array:
    """From the plain matrix, as stored, to the reordered weight."""
    elements = matrix.view(np.uint8)
    if problem.bits == 4:
        elements = unpack_nibbles(elements, 2 * elements.shape[1], "low_first")
    weight = elements.T if problem.transpose else elements
    fields = np.empty(weight.size, np.uint8)
    fields[fields_of(problem)] = shifted(problem, weight)
    stored = fields if problem.bits == 8 else pack_nibbles(fields, "low_first")
    return stored.reshape(problem.reordered_shape)


def restore(problem: Problem, reordered: Array) -> Array:
    """From the reordered weight to the plain matrix, as stored."""
    fields = reordered.reshape(-1)
    if problem.bits == 4:
        fields = unpack_nibbles(fields, 2 * fields.size, "low_first")
    weight = shifted(problem, fields[fields_of(problem)])
    elements = np.ascontiguousarray(weight.T if problem.transpose else weight)
    return pack_nibbles(elements, "low_first") if problem.bits == 4 else elements.view(np.int8)
