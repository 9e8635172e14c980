"""Matrices with outliers: inputs, and what of them is an outlier, from the contract alone."""

from __future__ import annotations

import math

import numpy as np

from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, bits

ELEMENTS = ("float16", "bfloat16", "float32")
TILE = 256  # columns that outliers are counted for together
# Rows and columns of whole vectors and of parts of them, of whole tiles and of parts.
SHAPES = (
    (1,),
    (17,),
    (256,),
    (700,),
    (1, 1),
    (3, 5),
    (5, 33),
    (16, 256),
    (17, 264),
    (64, 8),
    (65, 257),
    (130, 70),
    (2, 3, 40),
    (4, 2, 2, 136),
    (1, 2, 1, 3, 1, 2, 1, 19),
    (7, 1023),
    (33, 1536),
    (260, 520),
    (5000, 3),
    (2, 9001),
)
EMPTY = ((0,), (0, 5), (5, 0), (3, 0, 4))


def spiked(words: Array, dtype: str) -> Array:
    """Bell-shaped values, of which few are many times as large, some of them in one column."""
    fmt = FLOATS[dtype]
    values = inputs.bell(words)
    rare = inputs.field(words, 3, 6) == 0
    return inputs.rounded(np.where(rare, values * 16, values), fmt)


def make(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """An input: one of the general kinds, `spiked`, or `rows`, where some rows have a NaN."""
    if kind not in ("spiked", "rows"):
        return inputs.make(kind, shape, dtype, seed)
    flat = spiked(inputs.hashed(seed, math.prod(shape)), dtype)
    values = flat.reshape(-1, max(shape[-1], 1))
    if kind == "rows" and values.size:
        special = np.array([np.nan, np.inf, -np.inf]).astype(values.dtype)
        for place, one in enumerate(special):
            row = (seed * 5 + place * 3) % values.shape[0]
            values[row, (seed + 7 * place) % values.shape[1]] = one
    return values.reshape(shape)


def magnitudes(x: Array) -> Array:
    """The matrix of ``|x|`` in float32, rows by columns."""
    with np.errstate(invalid="ignore"):
        return np.abs(x.astype(np.float32)).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def outliers(x: Array, threshold: float) -> Array:
    """Which elements of the matrix are outliers: compared in float64, which holds both exactly."""
    with np.errstate(invalid="ignore"):
        found: Array = (threshold > 0) & (magnitudes(x).astype(np.float64) >= threshold)
    return found


def maxima(x: Array, threshold: float, axis: int) -> Array:
    """The largest magnitude along an axis of what is no outlier; a NaN among it is the result."""
    kept = np.where(outliers(x, threshold), np.float32(0), magnitudes(x))
    found = np.max(kept, axis=axis, initial=np.float32(0))
    nan = np.array(0x7FC00000, np.uint32).view(np.float32)
    return np.where(np.isnan(found), bits(nan), bits(found)).view(np.float32)
