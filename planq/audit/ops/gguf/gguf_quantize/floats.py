"""What the quantizers of blocks share: steps of float32, one rounding each.

Arrays have a block, or a sub-block, in each row. No NumPy function is used whose order of sums is
its own.
"""

from __future__ import annotations

import numpy as np

from planq.audit.reference.formats import Array, narrowed

F32 = np.float32
# Sub-blocks of smaller magnitudes have the scale 0 in some types.
TINY = F32(1e-15)


def chain(terms: Array) -> Array:
    """The sum of each row from +0 on, one element after another, in a column."""
    return np.asarray(np.add.accumulate(terms, axis=1)[:, -1:] + F32(0))


def peak(x: Array) -> Array:
    """The first element of largest magnitude in each row, +0 if there is none above 0."""
    found = np.zeros((len(x), 1), F32)
    for e in range(x.shape[1]):
        one = x[:, e : e + 1]
        found = np.where(np.abs(one) > np.abs(found), one, found)
    return found


def extreme(x: Array, sign: int) -> Array:
    """The first of the largest elements of each row, or with sign -1 of the smallest."""
    found = x[:, :1]
    for e in range(1, x.shape[1]):
        one = x[:, e : e + 1]
        found = np.where(one > found if sign > 0 else one < found, one, found)
    return found


def inverse(d: Array) -> Array:
    """`fl(1 / d)`, 0 where `d` is 0."""
    return np.where(d == 0, F32(0), F32(1) / d)


def clamped(v: Array, low: int, high: int) -> Array:
    """Numbers within a range; of a NaN 0."""
    return np.where(np.isnan(v), F32(0), np.clip(v, F32(low), F32(high)))


def nearest(v: Array, low: int, high: int) -> Array:
    """Integers of a range, ties to even."""
    return np.rint(clamped(v, low, high)).astype(np.int64)


def truncated(v: Array, low: int, high: int) -> Array:
    """Integers of a range, towards 0."""
    return np.trunc(clamped(v, low, high)).astype(np.int64)


def away(v: Array, low: int, high: int) -> Array:
    """Integers of a range, ties away from 0."""
    v = clamped(v, low, high)
    whole = np.trunc(v)
    beyond = np.copysign(F32(1), v)
    return np.where(np.abs(v - whole) >= F32(0.5), whole + beyond, whole).astype(np.int64)


def halved(d: Array) -> tuple[Array, Array]:
    """A float16 of each row as two bytes, and as float32."""
    half = narrowed(d, "float16")
    return bytes_of(half), half.astype(F32)


def bytes_of(numbers: Array) -> Array:
    """The bytes of each row."""
    own = np.ascontiguousarray(numbers)
    return own.view(np.uint8).reshape(len(own), -1)


def joined(*parts: Array) -> Array:
    """Blocks of these bytes, one part after another; integers by their lowest eight bits."""
    return np.concatenate([part.astype(np.uint8) for part in parts], axis=1)
