"""MX and NVFP4 in NumPy, written from their formulas: groups of codes with scales of 8 bits.

Exponents come from `frexp` and quotients from float64, in which division by a power of two is
exact; float32 appears where the contract says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from planq.audit.reference.formats import FLOATS, Array, Float, round_to

E2M1 = Float(np.dtype(ml_dtypes.float4_e2m1fn), 2, 0, 6.0)
CODES = {
    "float4_e2m1fn": E2M1,
    "float8_e4m3fn": FLOATS["float8_e4m3fn"],
    "float8_e5m2": FLOATS["float8_e5m2"],
}
EMAX = {"float4_e2m1fn": 2, "float8_e4m3fn": 8, "float8_e5m2": 15}
MX = ("mx", "mx_round_up")
GROUP = {"mx": 32, "mx_round_up": 32, "nvfp4": 16}
SCALES = {"mx": "float8_e8m0fnu", "mx_round_up": "float8_e8m0fnu", "nvfp4": "float8_e4m3fn"}
INPUTS = ("float16", "bfloat16", "float32")
NAN_CODE = {"float4_e2m1fn": 0, "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F}


@dataclass(frozen=True)
class Groups:
    """Codes, one a byte, and the bytes of the scales."""

    codes: Array
    scales: Array


def group_values(x: Array, size: int) -> Array:
    """float32 values as groups along the last axis, the last one completed by zeros."""
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % size)]
    whole = np.pad(x.astype(np.float32), padding)
    return whole.reshape(*x.shape[:-1], whole.shape[-1] // size, size)


def mx_exponents(peaks: Array, output_dtype: str, *, round_up: bool) -> Array:
    """`floor(log2(M))`, M rounded half up to the code's mantissa first if `round_up` is set.

    An infinity has 128, the exponent after that of the largest float32; zero has one below all.
    """
    finite = np.where(np.isfinite(peaks) & (peaks > 0), peaks, 1).astype(np.float64)
    fraction, exponent = np.frexp(finite)  # fraction in [1/2, 1)
    if round_up:
        significant = CODES[output_dtype].precision
        exponent += fraction >= 1 - 2.0 ** -(significant + 1)
    exponent = np.where(np.isinf(peaks), 129, exponent) - 1
    return np.asarray(np.where(peaks == 0, -1000, exponent))


def encoded(values: Array, output_dtype: str) -> Array:
    """The codes of `values`, rounded to nearest even and saturated; NaN counts as 0."""
    fmt = CODES[output_dtype]
    known = np.where(np.isnan(values), 0, values).astype(values.dtype)
    inside = np.clip(known, -fmt.largest, fmt.largest)
    return np.asarray(round_to(inside, fmt).astype(fmt.dtype)).view(np.uint8)


def mx(x: Array, output_dtype: str, *, round_up: bool) -> Groups:
    """OCP MX v1.0, section 6.3: groups of 32 under powers of two."""
    groups = group_values(x, 32)
    peaks = np.abs(groups).max(axis=-1, initial=0, keepdims=True)
    lost = np.isnan(peaks)
    exponent = mx_exponents(peaks, output_dtype, round_up=round_up)
    stored = np.clip(exponent - EMAX[output_dtype] + 127, 0, 254)
    with np.errstate(all="ignore"):
        quotients = np.ldexp(groups.astype(np.float64), 127 - stored)
    codes = np.where(lost, NAN_CODE[output_dtype], encoded(quotients, output_dtype))
    return finished(codes, np.where(lost, 255, stored), x.shape)


def nvfp4(x: Array, factor: np.float32) -> Groups:
    """Groups of 16 under float8_e4m3fn scales, all of it in float32."""
    groups = group_values(x, 16)
    with np.errstate(all="ignore"):
        peaks = np.abs(groups).max(axis=-1, initial=0, keepdims=True)
        wanted = peaks / np.float32(6) * factor
        lost = np.isnan(wanted)
        inside = np.clip(np.where(lost, 1, wanted), 2.0**-9, 448).astype(np.float32)
        scale = round_to(inside, FLOATS["float8_e4m3fn"])
        values = groups * (factor / scale)
    codes = np.where(lost, 0, encoded(values, "float4_e2m1fn"))
    stored = scale.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return finished(codes, np.where(lost, 0x7F, stored), x.shape)


def finished(codes: Array, stored: Array, shape: tuple[int, ...]) -> Groups:
    """The same without what completed the last group of a row."""
    columns = codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])
    return Groups(columns[..., : shape[-1]].astype(np.uint8), stored[..., 0].astype(np.uint8))


def quantized(x: Array, output_dtype: str, convention: str, factor: np.float32) -> Groups:
    """Codes and scales by any of the conventions."""
    if convention == "nvfp4":
        return nvfp4(x, factor)
    return mx(x, output_dtype, round_up=convention == "mx_round_up")


def code_values(codes: Array, input_dtype: str) -> Array:
    """What codes, one a byte, stand for."""
    bytes_ = np.ascontiguousarray(codes).view(np.uint8) if codes.itemsize == 1 else codes
    known: Array = bytes_.astype(np.uint8).view(CODES[input_dtype].dtype)
    return np.asarray(known.astype(np.float32))


def scale_values(stored: Array, convention: str, factor: np.float32) -> Array:
    """What codes are multiplied by, in float32."""
    raw = np.ascontiguousarray(stored).view(np.uint8).reshape(stored.shape)
    with np.errstate(all="ignore"):
        if convention == "nvfp4":
            return np.asarray(raw.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * factor)
        power = np.ldexp(1.0, raw.astype(np.int64) - 127)
        return np.where(raw == 255, np.nan, power).astype(np.float32)


def factors(x: Array, seed: int) -> Array:
    """An `inverse_tensor_scale` for a tensor: that of its range, another, or a peculiar one."""
    odd = (0.0, -0.0, np.inf, np.nan, -3.5, 1e-45, 3e38, 2.0**-120, 2.0**120)
    finite = np.abs(np.where(np.isfinite(x), x, 0).astype(np.float32)).max(initial=0)
    with np.errstate(all="ignore"):
        usual = np.float32(2688) / finite if finite > 0 else np.float32(1)
    table = (usual, np.float32(37.5), usual, np.float32(odd[seed // 4 % len(odd)]))
    return np.array([table[seed % 4]], np.float32)
