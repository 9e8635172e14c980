"""vLLM's fp8 codes of tokens by their formula: float32 operations of NumPy, a cast of ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from planq.audit.reference.formats import Array

F32 = np.float32


def quantized(
    x: Array, scale_ub: float | None = None, nonfinite: str = "propagate"
) -> dict[str, Array]:
    """The codes, as bytes, and the scales of each row."""
    wide = x.astype(F32)
    finite = np.isfinite(wide)
    peak = np.abs(np.where(finite, wide, F32(0))).max(axis=-1, initial=F32(0))
    bounded = peak if scale_ub is None else np.minimum(peak, F32(scale_ub))
    scale = np.maximum(bounded / F32(448), F32(1) / F32(448 * 512))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        value = np.clip(wide / scale[..., None], F32(-448), F32(448))
    value = np.where(np.isnan(value), F32(0), value)
    codes = value.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    if nonfinite == "propagate":
        lost = ~finite.all(axis=-1)
        codes[lost] = 0x7F
        scale = np.where(lost, F32(np.nan), scale)
    return {"output": codes, "scale": scale}


def hostile(dtype: Any, width: int, bound: float, seed: int = 0) -> Array:
    """Finite rows of a type: zeros, subnormals, the largest, ties, and ranges about a bound."""
    rng = np.random.default_rng(seed)
    info = ml_dtypes.finfo(dtype)
    sign = rng.choice([F32(-1), F32(1)], (24, width))
    x = (sign * np.exp2(rng.uniform(-12, 0, (24, width)))).astype(dtype)
    limit = np.asarray(bound, dtype)
    below, above = (np.nextafter(limit, np.asarray(end, dtype)) for end in (0, np.inf))
    x[0], x[1], x[2] = 0, -0.0, info.smallest_subnormal
    x[3] *= np.asarray(info.smallest_normal, dtype)
    x[4], x[5, 0] = info.max, info.max
    x[6], x[7] = x[6] / np.asarray(64, dtype), -info.max
    for row, peak in enumerate((below, limit, above, limit * np.asarray(1.5, dtype)), 8):
        x[row], x[row, width // 2] = x[row] * peak, -peak
    x[12] *= limit * np.asarray(16, dtype)
    # Quotients of ties, as long as the scale is the bound's.
    x[13] = np.minimum(np.arange(width) % 961 / 2, 448) * float(bound) / 448
    # A range that makes the least scale, and its neighbours.
    for row, exponent in enumerate((-9, -10, -9, -8), 14):
        x[row] = np.minimum(np.abs(x[row]), 1) * np.asarray(2.0**exponent, dtype)
        x[row, 0] = 2.0**exponent
    x[16, 0] = np.nextafter(np.asarray(2.0**-9, dtype), np.asarray(np.inf, dtype))
    x[18:] *= np.exp2(rng.integers(-20, 14, (6, 1))).astype(dtype)
    assert np.isfinite(x.astype(F32)).all()
    return x


def spoiled(x: Array, seed: int = 0) -> Array:
    """The same with NaN and infinities in every second row."""
    made, rng = x.copy(), np.random.default_rng(seed)
    for place, row in enumerate(made[::2]):
        row[rng.integers(0, row.size, 1 + row.size // 7)] = (np.nan, np.inf, -np.inf)[place % 3]
    return made
