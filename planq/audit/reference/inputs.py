"""Seeded inputs that are the same bits on every machine and NumPy version.

Element `i` depends on `(seed, i)` through an integer hash only; no library distribution, no libm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from planq.audit.reference.formats import FLOATS, Array, Float, bits, round_to

T = TypeVar("T")

MIXED_RUN = 24
TILE = 10007  # prime, so that a tile begins anywhere within a vector


def hashed(seed: int, count: int) -> Array:
    """`count` uint64 words: the finalizer of splitmix64 over a counter."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64)
        z += np.uint64(seed % 2**31 * 2**32)
        z *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z ^= z >> np.uint64(shift)
            z *= np.uint64(factor)
        z ^= z >> np.uint64(31)
        return z


def field(words: Array, low: int, width: int) -> Array:
    """`width` bits of each word from bit `low`, in int64."""
    return (words >> np.uint64(low) & np.uint64(2**width - 1)).view(np.int64)


def rounded(values: Array, fmt: Float) -> Array:
    """float64 values clamped to the finite range of `fmt` and rounded to it once."""
    values = np.clip(values, -fmt.largest, fmt.largest)
    # NumPy's own conversions round once; those of ml_dtypes may round twice.
    own = fmt.dtype in (np.float16, np.float32, np.float64)
    return (values if own else round_to(values, fmt)).astype(fmt.dtype)


def unsigned(fmt: Float) -> np.dtype[np.unsignedinteger]:
    """The unsigned dtype as wide as `fmt`."""
    return np.dtype(f"u{fmt.dtype.itemsize}")


def bell(words: Array) -> Array:
    """A bell-shaped value of about unit variance: an exact sum of four 16-bit integers."""
    total = sum(field(words, 16 * i, 16) for i in range(4))
    return (np.asarray(total) - 2 * 65535).astype(np.float64) * 2.0**-15


def places(words: Array, at: Array | None) -> Array:
    """Which elements of a tensor the words are of: all, unless told."""
    return np.arange(words.size) if at is None else at


def normal(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Bell-shaped values whose size changes by powers of two every 1024 elements."""
    run = places(words, at) // 1024
    return rounded(np.ldexp(bell(words), (run * 5) % 13 - 6), fmt)


def patterns(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Finite values of every exponent: random bit patterns, halved out of the Inf/NaN range."""
    raw = (words >> np.uint64(64 - 8 * fmt.dtype.itemsize)).astype(unsigned(fmt))
    top_exponent_bit = unsigned(fmt).type(1 << (8 * fmt.dtype.itemsize - 2))
    with np.errstate(invalid="ignore"):
        kept = np.isfinite(raw.view(fmt.dtype))
    return np.asarray(np.where(kept, raw, raw & ~top_exponent_bit)).view(fmt.dtype)


def ties(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Halves `k + 1/2` among maxima of 127, 7 and 448: quotients that fall on ties."""
    half = field(words, 0, 8) - 127.5
    chosen = field(words, 8, 4)
    first, second = chosen == 0, chosen == 1
    top = np.where(first, 127.0, np.where(second, -127.0, half))
    small = np.where(first, 7.0, np.where(second, -7.0, field(words, 0, 4) - 7.5))
    eighth = np.where(first, 448.0, half * np.ldexp(1.0, field(words, 12, 3) - 6))
    kind = places(words, at) // MIXED_RUN % 3
    return rounded(np.where(kind == 0, top, np.where(kind == 1, small, eighth)) / 8, fmt)


def subnormal(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Subnormals and the first normals, of both signs."""
    tiny = fmt.smallest_normal * 2.0 ** (1 - fmt.precision)
    span = min(fmt.precision, 30)
    magnitude = np.ldexp(field(words, 0, 31).astype(np.float64), span - 31)
    sign = 1.0 - 2.0 * field(words, 40, 1)
    return rounded(np.rint(magnitude) * sign * tiny, fmt)


def zeros(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Zeros of both signs, with a stretch of a few values in between."""
    sparse = (places(words, at) // 512 % 2 == 1) & (field(words, 0, 4) == 0)
    values = bell(words)
    return rounded(np.where(sparse, values, np.copysign(0.0, values)), fmt)


def constant(words: Array, fmt: Float) -> Array:
    """One value for all elements; the seed chooses its sign and size."""
    value = bell(words[:1]) + 0.25
    return rounded(np.repeat(value, words.size), fmt)


def offset(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Values far from zero beside their spread: large zero points."""
    sign = 1.0 - 2.0 * (places(words, at) // 1024 % 2)
    return rounded(sign * (40.0 + bell(words) / 2), fmt)


def huge(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Values up to the largest finite one, of both signs: `hi - lo` overflows."""
    share = field(words, 0, 20).astype(np.float64) * 2.0**-19 - 1.0
    return rounded(np.where(field(words, 20, 5) == 0, np.sign(share), share) * fmt.largest, fmt)


FINITE = (normal, patterns, ties, subnormal, zeros, offset, huge, normal)


def finite(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Runs of every finite kind, one after another."""
    at = places(words, at)
    pick = at // MIXED_RUN * 5 % len(FINITE)
    made = np.empty(words.size, unsigned(fmt))
    for number, kind in enumerate(FINITE):
        own = np.flatnonzero(pick == number)
        if own.size:
            made[own] = bits(kind(words[own], fmt, at[own]))
    return made.view(fmt.dtype)


def nonfinite(words: Array, fmt: Float, at: Array | None = None) -> Array:
    """Bell-shaped values with a NaN or an infinity in some runs of 128."""
    values = rounded(bell(words), fmt)
    special = np.array([np.nan, np.inf, -np.inf, -np.nan]).astype(fmt.dtype)[field(words, 0, 2)]
    marked = (places(words, at) // 128 % 3 == 1) & (field(words, 2, 5) == 0)
    return np.where(marked, bits(special), bits(values)).view(fmt.dtype)


def all_nonfinite(words: Array, fmt: Float) -> Array:
    """Nothing but NaN and infinities."""
    values = np.array([np.nan, np.inf, -np.inf, -np.nan]).astype(fmt.dtype)
    return values[field(words, 0, 2)]


def mixed(words: Array, fmt: Float) -> Array:
    """Mostly finite runs of every kind; every fifth stretch of 256 holds non-finite values."""
    at = np.arange(words.size)
    stretch = at // 256 % 5 == 4
    made = np.empty(words.size, unsigned(fmt))
    for kind, own in ((finite, np.flatnonzero(~stretch)), (nonfinite, np.flatnonzero(stretch))):
        if own.size:
            made[own] = bits(kind(words[own], fmt, own))
    return made.view(fmt.dtype)


KINDS: dict[str, Callable[[Array, Float], Array]] = {
    kind.__name__: kind
    for kind in (
        normal,
        patterns,
        ties,
        subnormal,
        zeros,
        constant,
        offset,
        huge,
        finite,
        nonfinite,
        all_nonfinite,
        mixed,
    )
}


def make(kind: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """A C-contiguous input tensor of the given kind.

    `tiled` repeats finite values of every kind: for large tensors, whose values take long to make.
    """
    count = math.prod(shape)
    if kind == "tiled":
        return np.resize(make("finite", (min(count, TILE),), dtype, seed), shape)
    return KINDS[kind](hashed(seed, count), FLOATS[dtype]).reshape(shape)


class Chooser:
    """Draws choices from the integer hash, one after another."""

    def __init__(self, seed: int, count: int = 64) -> None:
        """Starts the sequence named by `seed`."""
        self._words = iter(hashed(seed, count).tolist())

    def pick(self, options: tuple[T, ...]) -> T:
        """One of `options`."""
        return options[int(next(self._words)) % len(options)]
