"""Attention in NumPy by exact sums, whose bits depend on no machine and no batch.

An operator will take its place. Queries, keys, values and the shares of keys become whole numbers,
each row with a power of two of its own for a unit. All that is added up is whole numbers below
2^53. So every sum is exact, in whatever order and with whatever instructions the library for
matrices takes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import planq

Array = np.ndarray[Any, Any]
EXP = planq.UnaryDescriptor(
    shape=(planq.Dim("count", max=2**40), 1), function="exp", input_dtype="float32"
)
LEAST = np.iinfo(np.int32).min


class Cache(NamedTuple):
    """Keys or values of a layer: whole numbers, and the exponent of each head's unit."""

    whole: Array
    unit: Array


def whole(x: Array, bits: int = 22) -> Cache:
    """Rows as whole numbers up to 2^bits, in float64, times 2^unit: the nearest, ties to even."""
    _, exponent = np.frexp(np.abs(x).max(axis=-1))
    unit = exponent - bits
    return Cache(np.rint(np.ldexp(x.astype(np.float64), -unit[..., None])), unit)


def attend(query: Array, keys: Cache, values: Cache, visible: Array, exp: planq.Plan) -> Array:
    """What heads that share keys and values find in them.

    Args:
        query: (rows, D).
        keys: (n, D).
        values: Likewise.
        visible: (rows, n): which a row sees.
        exp: Makes powers of e of float32.

    Returns:
        (rows, D) in float32.
    """
    asked = whole(query)
    scores = np.ldexp(asked.whole @ keys.whole.T, asked.unit[:, None] + keys.unit)
    scores = np.where(visible, scores / np.sqrt(query.shape[-1]), -np.inf)
    powers = (scores - scores.max(axis=1, keepdims=True)).astype(np.float32)
    column = powers.reshape(-1, 1)
    exp.run(planq.HOST, None, planq.UnaryArgs(input=column, output=column))
    parts = np.rint(np.ldexp(powers.astype(np.float64), 30))
    shares = parts / parts.sum(axis=1, keepdims=True)
    unit = np.where(visible, values.unit, LEAST).max(axis=1, keepdims=True)
    weights = np.rint(np.ldexp(shares, values.unit - unit + 26))
    found: Array = np.ldexp(weights @ values.whole, unit - 26).astype(np.float32)
    return found
