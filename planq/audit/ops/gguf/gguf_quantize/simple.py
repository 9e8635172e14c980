"""The types of blocks whose scale follows from one element, or from a sum: no search."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.gguf.blocks import DOUBLED
from planq.audit.ops.gguf.gguf_quantize import codes
from planq.audit.ops.gguf.gguf_quantize.floats import (
    F32,
    away,
    bytes_of,
    chain,
    clamped,
    extreme,
    halved,
    inverse,
    joined,
    nearest,
    peak,
    truncated,
)
from planq.audit.reference.formats import Array


def below(x: Array, n: int) -> tuple[Array, Array]:
    """A scale under which the peak is `-n`, and codes from 0 on."""
    d = peak(x) / F32(-n)
    return d, truncated(x * inverse(d) + F32(n + 0.5), 0, 2 * n - 1)


def above(x: Array, n: int) -> tuple[Array, Array, Array]:
    """A scale, the minimum, and codes up to `n`."""
    m = extreme(x, -1)
    d = (extreme(x, 1) - m) / F32(n)
    return d, m, truncated((x - m) * inverse(d) + F32(0.5), 0, n)


def q4_0(x: Array) -> Array:
    """Four bits."""
    d, q = below(x, 8)
    return joined(halved(d)[0], codes.halves(q, 16))


def q4_1(x: Array) -> Array:
    """Four bits above a minimum."""
    d, m, q = above(x, 15)
    return joined(halved(d)[0], halved(m)[0], codes.halves(q, 16))


def q5_0(x: Array) -> Array:
    """Five bits, the uppermost ones in a word."""
    d, q = below(x, 16)
    return joined(halved(d)[0], codes.neighbours(q >> 4, 1), codes.halves(q & 15, 16))


def q5_1(x: Array) -> Array:
    """Five bits above a minimum."""
    d, m, q = above(x, 31)
    high = codes.neighbours(q >> 4, 1)
    return joined(halved(d)[0], halved(m)[0], high, codes.halves(q & 15, 16))


def of_magnitude(x: Array, n: int, high: int | None = None) -> tuple[Array, Array]:
    """A scale under which the largest magnitude is `n`, and codes from `-n` on."""
    d = np.abs(peak(x)) / F32(n)
    return d, away(x * inverse(d), -n, high or n)


def q8_0(x: Array) -> Array:
    """Bytes."""
    d, q = of_magnitude(x, 127)
    return joined(halved(d)[0], q)


def q8_1(x: Array) -> Array:
    """Bytes, and their sum times the scale."""
    d, q = of_magnitude(x, 127)
    total = q.sum(1, keepdims=True).astype(F32) * d
    return joined(halved(d)[0], halved(total)[0], q)


def q8_k(x: Array) -> Array:
    """Bytes under a float32, and sums of sixteen."""
    top = peak(x)
    i = F32(-127) / top
    q = np.where(top == 0, 0, nearest(i * x, -127, 127))
    d = np.where(top == 0, F32(0), F32(1) / i)
    sums = q.reshape(-1, 16, 16).sum(2)
    return joined(bytes_of(d), q, codes.words(sums, 2))


def tq1_0(x: Array) -> Array:
    """Trits, five a byte and in the last four bytes four."""
    d, q = of_magnitude(x, 1)
    parts = []
    for first, count, most in ((0, 32, 5), (160, 16, 5), (240, 4, 4)):
        trits = (q[:, first : first + count * most] + 1).reshape(-1, most, count)
        number = (trits * 3 ** (4 - np.arange(most))[:, None]).sum(1)
        parts.append(-(-256 * number // 243))
    return joined(*parts, halved(d)[0])


def tq2_0(x: Array) -> Array:
    """Trits in two bits each."""
    d, q = of_magnitude(x, 1)
    return joined(codes.quarters(q + 1), halved(d)[0])


def q1_0(x: Array) -> Array:
    """Signs, and the mean magnitude."""
    d = chain(np.abs(x)) / F32(128)
    return joined(halved(d)[0], codes.neighbours((x >= 0).astype(np.int64), 1))


def q2_0(x: Array) -> Array:
    """Two bits, of which -1 to 1 are in use."""
    d, q = of_magnitude(x, 1, 2)
    return joined(halved(d)[0], codes.neighbours(q + 1, 2))


def doubled(x: Array, scale: Array) -> Array:
    """The first codes whose doubled value times the scale is nearest."""
    best = np.zeros(x.shape, np.int64)
    least = np.abs(F32(DOUBLED[0]) * scale - x)
    for c in range(1, 16):
        error = np.abs(F32(DOUBLED[c]) * scale - x)
        best, least = np.where(error < least, c, best), np.where(error < least, error, least)
    return best


def mxfp4(x: Array) -> Array:
    """Numbers of four bits under a power of two.

    The logarithm has to be right to the last bit of float32. That of float64 is near enough: it
    never comes near to a tie of float32 where the result is almost an integer.
    """
    largest = np.abs(peak(x))
    lg = np.log2(largest.astype(np.float64)).astype(F32)
    byte = clamped(np.floor(lg) + F32(125), 0, 255).astype(np.int64)
    scale = np.ldexp(F32(1), (byte - 128).astype(np.int32))
    return joined(byte, codes.halves(doubled(x, scale), 16))


def ue4m3(v: Array) -> Array:
    """A float without a sign, of four bits of exponent and three of mantissa, half up.

    What would have the largest exponent is the largest number.
    """
    v = np.minimum(v, F32(448))
    raw = v.view(np.uint32).astype(np.int64)
    small = truncated(v * F32(512) + F32(0.5), 0, 7)
    normal = (raw >> 20) - (120 << 3) + (raw >> 19 & 1)
    return np.where(v < F32(2.0**-6), small, np.where(normal < 0x78, normal, 0x7E))


def nvfp4(x: Array) -> Array:
    """Numbers of four bits; four scales that are floats of seven bits."""
    parts = x.reshape(-1, 16)
    byte = ue4m3(np.abs(peak(parts)) / F32(6))
    exponent, mantissa = byte >> 3, byte & 7
    significand = np.where(exponent == 0, mantissa, 8 + mantissa).astype(F32)
    scale = np.ldexp(significand, (np.maximum(exponent, 1) - 11).astype(np.int32))
    q = doubled(parts, scale).reshape(-1, 64)
    return joined(byte.reshape(-1, 4), codes.halves(q, 8))
