"""`vectorwise_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planq.audit.ops.outlier.vectorwise import Problem
from planq.audit.reference.formats import CANONICAL_NAN, Array


def ends(problem: Problem, x: Array) -> tuple[Array, Array, Array]:
    """The least and the largest element of each segment, and whether one is not finite."""
    kept: dict[str, Any] = {"axis": problem.along, "keepdims": True}
    finite = np.isfinite(x)
    low = np.min(x, initial=np.inf, where=finite, **kept)
    high = np.max(x, initial=-np.inf, where=finite, **kept)
    none = low > high
    low, high = np.where(none, 0, low), np.where(none, 0, high)
    some: Array = ~np.asarray(finite.all(**kept))
    return low.astype(x.dtype), high.astype(x.dtype), some


def by_magnitude(problem: Problem, x: Array, largest: Array) -> tuple[Array, Array]:
    """Statistics and values that round to codes, of the forms without a zero point."""
    c = x.dtype.type
    scale = largest * c(0.7) if problem.form == "truncated" else largest
    divided = np.clip(x, -scale, scale) / scale * c(127)
    factor = c(127) / scale
    if problem.form in ("row", "vector"):
        return scale, np.where(np.isfinite(factor), x * factor, divided)
    return scale, divided


def by_range(x: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Statistics, zero points and values of the forms with one."""
    c = x.dtype.type
    width = high - low
    scale = np.where(np.isfinite(width), c(255) / width, c(127.5) / (high * c(0.5) - low * c(0.5)))
    magnitude = np.maximum(np.abs(low), np.abs(high))
    bound = c(2.0**22 if c is np.float32 else 2.0**30) / magnitude
    scale = np.minimum(np.minimum(scale, bound), np.finfo(c).max).astype(c)
    scale = np.where(magnitude == 0, c(255), scale)
    zero = -np.rint(low * scale)
    return scale, zero, x * scale + zero


def quantize(problem: Problem, values: Array) -> dict[str, Array]:
    """Codes, statistics, zero points."""
    x = values.astype(problem.scalar)
    low, high, bad = ends(problem, x)
    with np.errstate(all="ignore"):
        if problem.shifted:
            scale, zero, v = by_range(x, low, high)
            v = np.clip(np.rint(v), 0, 255)
        else:
            zero = np.zeros_like(low)
            scale, v = by_magnitude(problem, x, np.maximum(np.abs(low), np.abs(high)))
            v = np.clip(np.rint(v), -127, 127)
    codes = np.where(bad | np.isnan(v), 0, v).astype(np.int16).astype(problem.code)
    nan = np.array(CANONICAL_NAN[np.dtype(x.dtype).name], f"u{x.dtype.itemsize}").view(x.dtype)
    found = {"output": codes, "scale": stored(problem, np.where(bad, nan, scale + x.dtype.type(0)))}
    if problem.shifted:
        found["zero_point"] = stored(problem, np.where(bad, 0, zero).astype(np.int32))
    return found


def stored(problem: Problem, values: Array) -> Array:
    """One for each segment; an axis without elements has none."""
    return values.reshape(-1)[: math.prod(problem.statistic_shape)].reshape(problem.statistic_shape)
