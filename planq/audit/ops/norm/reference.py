"""Norms of rows in NumPy, written from the numeric contract alone: what the operators share."""

from __future__ import annotations

from typing import Any

import numpy as np

from planq.audit.reference.formats import Array, narrowed
from planq.audit.reference.functions import rsqrt

F32 = np.float32
RUN = 1024


def row_sums(terms: Array) -> Array:
    """Of each row: runs of 1024, each filled with +0 to a power of two, by neighbours in pairs."""
    length = terms.shape[-1]
    if length > RUN:
        runs = [row_sums(terms[..., i : i + RUN]) for i in range(0, length, RUN)]
        return row_sums(np.concatenate(runs, axis=-1))
    full = np.zeros((*terms.shape[:-1], 1 << (length - 1).bit_length()), F32)
    full[..., :length] = terms
    while full.shape[-1] > 1:
        full = full[..., 0::2] + full[..., 1::2]
    return full


def with_residual(problem: Any, given: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """The rows in float32, and the residual as it is stored, if there is one."""
    x = given["input"].astype(F32)
    if problem.residual_dtype is None:
        return x, {}
    stored = narrowed(x + given["residual"].astype(F32), problem.residual_dtype)
    return stored.astype(F32), {"residual": stored}


def factors(squares: Array, length: int, eps: Array) -> Array:
    """What rows are multiplied by, from the sums of their squares."""
    mean = squares / F32(length) + eps.astype(F32)
    return np.asarray(rsqrt(mean.ravel())).astype(F32).reshape(mean.shape)


def weights(problem: Any, given: dict[str, Array]) -> Array:
    """What columns are multiplied by."""
    return np.asarray(given["weight"].astype(F32) + F32(problem.weight_offset))
