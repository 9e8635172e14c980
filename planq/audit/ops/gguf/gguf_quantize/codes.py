"""Codes of elements into the bytes of blocks: the orders of docs/numerics/gguf.md.

Arrays are int64 and have a block in each row; codes are not negative.
"""

from __future__ import annotations

import numpy as np

from planq.audit.reference.formats import Array


def fields(parts: Array, width: int) -> Array:
    """Integers of the parts along the axis before the last, the first in the lowest bits."""
    shifts = width * np.arange(parts.shape[-2])
    return np.asarray((parts << shifts[:, None]).sum(-2))


def flat(parts: Array) -> Array:
    """A row for each block."""
    return parts.reshape(len(parts), -1)


def halves(q: Array, group: int) -> Array:
    """Runs of twice `group` codes of four bits: the first half in the lower bits."""
    return flat(fields(q.reshape(len(q), -1, 2, group), 4))


def quarters(q: Array) -> Array:
    """Runs of 128 codes of two bits: 32 after another in the same bytes."""
    return flat(fields(q.reshape(len(q), -1, 4, 32), 2))


def neighbours(q: Array, width: int) -> Array:
    """Codes of so many bits, neighbours in one byte."""
    return flat(fields(q.reshape(len(q), -1, 8 // width, 1), width))


def eighths(bit: Array) -> Array:
    """256 bits: 32 after another in the same bytes."""
    return flat(fields(bit.reshape(len(bit), 8, 32), 1))


def words(q: Array, nbytes: int) -> Array:
    """The bytes of integers, the lowest first."""
    return flat(q[..., None] >> 8 * np.arange(nbytes) & 255)


def six_bits(scale: Array, minimum: Array) -> Array:
    """Eight scales and eight minima of six bits in twelve bytes."""
    first = scale[:, :4] | scale[:, 4:] >> 4 << 6
    second = minimum[:, :4] | minimum[:, 4:] >> 4 << 6
    third = scale[:, 4:] & 15 | (minimum[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def six_bits_of_sixteen(scale: Array) -> Array:
    """Sixteen scales of six bits in twelve bytes."""
    low = halves(scale & 15, 8)
    high = fields((scale >> 4).reshape(-1, 4, 4), 2)
    return np.concatenate([low, high], axis=1)
