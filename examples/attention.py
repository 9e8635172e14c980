"""Attention of one token of each sequence against a cache in pages, in NumPy and to the bit.

The order of every sum is fixed: products are those of tensor cores, by planq's model of these;
keys are taken in blocks of 128, and blocks in spans of 1024, by their positions in the sequence.
So a token's bits depend on its own sequence alone. It is slow. The operator
`attention` has the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from planq.audit.ops.linear.float_sums import chain
from planq.audit.reference.formats import Array, narrowed
from planq.audit.reference.functions import LOG2E, exp2_fast, fma

BLOCK, SPAN = 128, 1024
F32 = np.float32


def attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    tables: list[list[int]],
    lengths: list[int],
) -> torch.Tensor:
    """What each token finds in the keys and values of its sequence, the scale `1 / sqrt(D)`.

    Args:
        query: (tokens, heads, D) in bfloat16.
        key_cache: (pages, places, key heads, D), likewise.
        value_cache: The same for values.
        tables: The pages of each token's sequence.
        lengths: How many keys each sequence has, the token's own among them.

    Returns:
        (tokens, heads, D), on the host.
    """
    found = []
    for token, table, length in zip(query.cpu(), tables, lengths, strict=True):
        keys, values = (
            cache[table].cpu().flatten(0, 1)[:length] for cache in (key_cache, value_cache)
        )
        groups = token.unflatten(0, (keys.shape[1], -1))
        heads = [
            attend(array(group), array(keys[:, i]), array(values[:, i]))
            for i, group in enumerate(groups)
        ]
        found.append(torch.from_numpy(np.concatenate(heads).view(np.int16)).view(torch.bfloat16))
    return torch.stack(found)


def array(tensor: torch.Tensor) -> Array:
    """The bits of bfloat16 as NumPy has them."""
    import ml_dtypes

    bits: Array = tensor.contiguous().view(torch.int16).numpy()
    return bits.view(ml_dtypes.bfloat16)


def attend(query: Array, keys: Array, values: Array) -> Array:
    """Of heads (g, D) that share keys (n, D) and values (n, D): (g, D)."""
    scale = F32(1 / np.sqrt(query.shape[-1]))
    c = F32(scale * F32(LOG2E))
    spans = [
        span_of(query, keys[at : at + SPAN], values[at : at + SPAN], c)
        for at in range(0, len(keys), SPAN)
    ]
    most, total, found = spans[0]
    for other, sums, part in spans[1:]:
        largest = np.maximum(most, other)
        a, b = exp2_fast(5, most - largest), exp2_fast(5, other - largest)
        total, found = total * a + sums * b, found * a[:, None] + part * b[:, None]
        most = largest
    return narrowed(found * (F32(1) / total)[:, None] + F32(0), query.dtype.name)


def span_of(query: Array, keys: Array, values: Array, c: Any) -> tuple[Array, Array, Array]:
    """The largest score, the sum of powers and the weighted values of up to 1024 keys."""
    rows = len(query)
    most = np.full(rows, -np.inf, F32)
    sums, found = np.zeros((4, rows), F32), np.zeros((rows, values.shape[-1]), F32)
    for at in range(0, len(keys), BLOCK):
        block = slice(at, at + BLOCK)
        scores = chain(np.zeros((rows, len(keys[block])), F32), query, keys[block])
        largest = np.maximum(most, scores.max(axis=1) * c)
        fading = exp2_fast(5, most - largest)
        powers = exp2_fast(5, fma(scores, c, -largest[:, None]))
        sums = sums * fading
        for j, power in enumerate(powers.T):
            sums[j % 8 // 2] += power
        weights = narrowed(powers, query.dtype.name)
        found = chain(found * fading[:, None], weights, values[block].T)
        most = largest
    return most, (sums[0] + sums[1]) + (sums[2] + sums[3]), found
