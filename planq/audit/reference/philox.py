"""Philox4x32-10 in NumPy, from the definition of Random123."""

from __future__ import annotations

import numpy as np

from planq.audit.reference.formats import Array

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 2**32 - 1
COUNT = 2**64


def product(multiplier: int, word: Array) -> tuple[Array, Array]:
    """High and low word of a 32 by 32 bit product."""
    whole = word * np.uint64(multiplier)
    return whole >> np.uint64(32), whole & np.uint64(WORD)


def philox(counter: tuple[Array, Array, Array, Array], key: int) -> tuple[Array, ...]:
    """Four words for each counter; words are 32 bits in uint64, the key's low word is the first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & WORD, key >> 32
    for _ in range(ROUNDS):
        high0, low0 = product(MULTIPLIERS[0], c0)
        high1, low1 = product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), low1, high0 ^ c3 ^ np.uint64(k1), low0
        k0, k1 = k0 + WEYL[0] & WORD, k1 + WEYL[1] & WORD
    return c0, c1, c2, c3


def words(seed: int, offset: int, indices: Array) -> Array:
    """Word `i mod 4` of the block at counter `offset + i div 4`, for each element index `i`."""
    blocks = np.arange(-(-(int(indices.max(initial=-1)) + 1) // 4), dtype=np.uint64)
    with np.errstate(over="ignore"):
        low = blocks + np.uint64(offset % COUNT)
    zero = np.zeros_like(low)
    drawn = philox((low & np.uint64(WORD), low >> np.uint64(32), zero, zero), seed % COUNT)
    return np.asarray(np.stack(drawn, axis=-1).reshape(-1)[indices].astype(np.uint32))


def uniform(seed: int, offset: int, shape: tuple[int, ...]) -> Array:
    """`(w >> 8) / 2^24` of every element in row-major order, in float64; float32 holds it too."""
    drawn = words(seed, offset, np.arange(int(np.prod(shape, dtype=np.int64))))
    return ((drawn >> np.uint32(8)).astype(np.float64) * 2.0**-24).reshape(shape)
