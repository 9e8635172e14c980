"""Choices of a router: which experts each token goes to, and rows of any bits for them."""

from __future__ import annotations

import math

import numpy as np

from planq.audit.reference.formats import STORAGE, Array
from planq.audit.reference.inputs import field, hashed

# Where pairs go: all over, to one expert, to experts in descending order, to each in turn; some or
# all of them to no expert, by a mark of -1, by the numbers of others, or by numbers of any bits.
KINDS = ("spread", "one", "descending", "in_turn", "marked", "others", "none", "any_bits")
FAR = (-1, 2**31 - 1, -(2**31), -2)


def experts_of(tokens: int, top_k: int, experts: int, kind: str, seed: int) -> Array:
    """Indices of this kind."""
    count = tokens * top_k
    words = hashed(seed, count)
    spread = (words % np.uint64(experts)).astype(np.int64)
    outside = field(words, 40, 2)
    if kind == "one":
        index = np.full(count, spread[0] if count else 0)
    elif kind == "descending":
        index = np.sort(spread)[::-1]
    elif kind == "in_turn":
        index = np.arange(count) % experts
    elif kind == "marked":
        index = np.where(outside == 0, -1, spread)
    elif kind == "others":
        # Experts of three GPUs, of which this one has those in the middle.
        index = spread * 3 - experts
    elif kind == "none":
        index = np.array(FAR)[outside]
    elif kind == "any_bits":
        bits = field(words, 0, 32).astype(np.uint32).view(np.int32).astype(np.int64)
        index = np.where(outside == 0, spread, np.where(outside == 1, experts, bits))
    else:
        index = spread
    return index.astype(np.int32).reshape(tokens, top_k)


def any_bits(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Elements of any bits: NaN of every payload, subnormal numbers, zeros of both signs."""
    storage = STORAGE[dtype]
    count = math.prod(shape)
    words = hashed(seed, count)
    raw = (words >> np.uint64(64 - 8 * storage.itemsize)).astype(f"u{storage.itemsize}")
    return raw.view(storage).reshape(shape)
