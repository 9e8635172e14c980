"""The order of packed 4-bit weights in NumPy, from PTX's fragments of `mma.m16n8k16`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import Array, pack_nibbles, unpack_nibbles

TILE = 64


@dataclass(frozen=True)
class PackProblem:
    """A weight (n, k), and which way it goes."""

    weight_shape: tuple[int, int]
    code_dtype: str = "uint4"
    inverse: bool = False
    nibble_order: str = "low_first"

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        n, k = self.weight_shape
        return f"{n}x{k},{self.code_dtype},{self.nibble_order}{',inverse' * self.inverse}"

    @property
    def tiles(self) -> tuple[int, int]:
        """Down and across."""
        n, k = self.weight_shape
        return -(-n // TILE), -(-k // TILE)

    @property
    def flip(self) -> int:
        """What is stored of a signed code is its distance from the lowest."""
        return 8 if self.code_dtype == "int4" else 0

    def with_rows(self, rows: int) -> PackProblem:
        """The same with another n."""
        return replace(self, weight_shape=(rows, self.weight_shape[1]))


def places() -> tuple[Array, Array]:
    """The row and the term of a tile for each nibble, low ones first.

    Of a warp of 16 rows, of a thread, of 16 terms: PTX's a0 to a7 of the A fragment. Its registers
    have two of them each.
    """
    warp, lane, step, nibble = np.indices((4, 32, 4, 8))
    register, half = nibble % 4, nibble // 4
    a = 2 * register + half
    group, thread = lane >> 2, lane % 4
    row = np.where((a < 2) | ((a >= 4) & (a < 6)), group, group + 8)
    column = thread * 2 + (a & 1) + np.where(a >= 4, 8, 0)
    return (16 * warp + row).reshape(-1), (16 * step + column).reshape(-1)


def pack(problem: PackProblem, matrix: Array) -> Array:
    """From the plain matrix, as stored, to the packed weight."""
    (n, k), (down, across) = problem.weight_shape, problem.tiles
    codes = np.zeros((down * TILE, across * TILE), np.uint8)
    codes[:n, :k] = unpack_nibbles(matrix, k, problem.nibble_order)
    row, term = places()
    tiles = codes.reshape(down, TILE, across, TILE)[:, row, :, term] ^ problem.flip
    nibbles = np.moveaxis(tiles, 0, -1).reshape(down, across * TILE * TILE)
    return pack_nibbles(nibbles, "low_first")


def restore(problem: PackProblem, packed: Array) -> Array:
    """From the packed weight to the plain matrix, as stored."""
    (n, k), (down, across) = problem.weight_shape, problem.tiles
    nibbles = unpack_nibbles(packed, across * TILE * TILE, "low_first") ^ problem.flip
    row, term = places()
    codes = np.zeros((down, TILE, across, TILE), np.uint8)
    codes[:, row, :, term] = np.moveaxis(nibbles.reshape(down, across, TILE * TILE), -1, 0)
    whole = codes.reshape(down * TILE, across * TILE)
    return pack_nibbles(whole[:n, :k], problem.nibble_order)
