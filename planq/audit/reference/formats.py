"""Number formats: what each dtype name means, in NumPy terms and in IEEE terms.

The roundings are spelled out here rather than borrowed: `ml_dtypes` rounds a float64 through
float32, which is two roundings where the contract asks for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Float:
    """A binary floating point format: `precision` significant bits, exponents from `lowest`."""

    dtype: Any
    precision: int
    lowest: int
    largest: float

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return float(2.0**self.lowest)


FLOATS = {
    "float16": Float(np.dtype(np.float16), 11, -14, 65504.0),
    "bfloat16": Float(np.dtype(ml_dtypes.bfloat16), 8, -126, (2 - 2.0**-7) * 2.0**127),
    "float32": Float(np.dtype(np.float32), 24, -126, (2 - 2.0**-23) * 2.0**127),
    "float64": Float(np.dtype(np.float64), 53, -1022, (2 - 2.0**-52) * 2.0**1023),
    "float8_e4m3fn": Float(np.dtype(ml_dtypes.float8_e4m3fn), 4, -6, 448.0),
    "float8_e5m2": Float(np.dtype(ml_dtypes.float8_e5m2), 3, -14, 57344.0),
}

INPUT_DTYPES = ("float16", "bfloat16", "float32", "float64")
VECTOR = {"float16": 8, "bfloat16": 8, "float32": 4, "float64": 2}  # elements of 16 bytes
INTEGER_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}

STORAGE = {
    **{name: f.dtype for name, f in FLOATS.items()},
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int4": np.dtype(np.uint8),
    "uint4": np.dtype(np.uint8),
    "float4_e2m1fn": np.dtype(np.uint8),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}

CANONICAL_NAN = {
    "float16": 0x7E00,
    "bfloat16": 0x7FC0,
    "float32": 0x7FC00000,
    "float64": 0x7FF8 << 48,
    "float8_e4m3fn": 0x7F,
    "float8_e5m2": 0x7F,
}


def bits(values: Array) -> Array:
    """The same bytes as unsigned integers, so that `==` compares bits."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def round_to(values: Array, fmt: Float) -> Array:
    """Rounds float32 or float64 values once, to nearest even, to numbers of `fmt`; keeps the dtype.

    The values must lie within the finite range of `fmt`. Subnormals and the sign of zero are kept.
    """
    if np.finfo(values.dtype).nmant < fmt.precision:
        return values
    _, exponent = np.frexp(values)
    quantum = np.maximum(exponent - fmt.precision, fmt.lowest - fmt.precision + 1)
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, -quantum)), quantum))


def pack_nibbles(codes: Array, order: str) -> Array:
    """Packs 4-bit codes two a byte along the last axis; a spare nibble is 0."""
    pairs = np.concatenate([codes, np.zeros_like(codes[..., : codes.shape[-1] % 2])], axis=-1)
    nibbles = (pairs & 15).astype(np.uint8)
    even, odd = nibbles[..., 0::2], nibbles[..., 1::2]
    return even | odd << 4 if order == "low_first" else odd | even << 4


def unpack_nibbles(packed: Array, columns: int, order: str) -> Array:
    """The 4-bit patterns (0 to 15) of `columns` elements a row."""
    low, high = packed & 15, packed >> 4
    pair = (low, high) if order == "low_first" else (high, low)
    codes = np.stack(pair, axis=-1).reshape(*packed.shape[:-1], packed.shape[-1] * 2)
    return codes[..., :columns]


def narrowed(values: Array, dtype: str) -> Array:
    """`round_T`: one rounding to a float type, with overflow to infinity and the canonical NaN."""
    fmt = FLOATS[dtype]
    finite = np.isfinite(values)
    near = round_to(np.where(finite, values, values.dtype.type(0)), fmt)
    near = np.where(np.abs(near) > fmt.largest, np.copysign(np.inf, near), near)
    stored = np.where(finite, near, values).astype(fmt.dtype)
    return canonical(stored, dtype)


def canonical(stored: Array, dtype: str) -> Array:
    """The same with every NaN in its canonical form."""
    unsigned = np.dtype(f"u{stored.dtype.itemsize}")
    raw = np.ascontiguousarray(stored).view(unsigned).reshape(stored.shape)
    nan = unsigned.type(CANONICAL_NAN[dtype])
    return np.asarray(np.where(np.isnan(stored), nan, raw)).view(FLOATS[dtype].dtype)
