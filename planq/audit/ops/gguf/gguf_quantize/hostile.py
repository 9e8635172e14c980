"""Blocks that are hard to quantize: a kind for each block, or for each sixteen neighbours of it.

A kind makes float64 values of bell-shaped ones, and of the words of the integer hash.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planq.audit.ops.gguf.blocks import DOUBLED, NONLINEAR
from planq.audit.reference.formats import FLOATS, Array, narrowed
from planq.audit.reference.inputs import bell, field, hashed

Kind = Callable[[Array, Array], Array]

RUN = 16
THRESHOLD = float(np.float32(1e-15))


def led(values: Array, first: float | Array) -> Array:
    """The same with another first element in each run."""
    own = values.copy()
    own[:, ::RUN] = first
    return own


def halves(low: int, high: int, first: int) -> Kind:
    """Multiples of 1/2, so that codes of that range are ties; the first is the peak."""
    return lambda _, words: led((words % (2 * (high - low) + 1)) / 2 + low, first)


def middles(table: Array, first: int) -> Kind:
    """Numbers halfway between those of a table; the first is the peak."""
    order = np.sort(table)
    between = (order[1:] + order[:-1]) / 2
    return lambda _, words: led(between[words % len(between)], first)


def marked(values: tuple[float, ...], often: int) -> Kind:
    """Some elements are one of these values."""
    held = np.array(values)
    return lambda z, words: np.where(words % often == 0, held[words >> 8 & 1], z)


def below_powers(low: int, high: int) -> Kind:
    """Peaks of a few steps of float32 below powers of two, whose logarithms may round up."""

    def made(z: Array, words: Array) -> Array:
        power = np.ldexp(1.0, (words[:, :1] % (high - low) + low).astype(np.int32))
        return led(z / 64 * power, power * (1 - (words[:, ::RUN] >> 8 & 63) * 2.0**-24))

    return made


def eight_bit_scales(z: Array, words: Array) -> Array:
    """Peaks whose sixths are ties as scales of NVFP4, subnormal ones and too large ones, too."""
    chosen = words[:, ::RUN]
    sixth = np.ldexp((chosen % 16 + 16) / 2, ((chosen >> 8) % 22 - 12).astype(np.int32))
    return led(z / 8 * np.abs(sixth).min(1, keepdims=True), 6 * sixth)


def thresholds(z: Array, words: Array) -> Array:
    """Peaks at 1e-15, just below it and above."""
    near = THRESHOLD * (1 + (words[:, ::RUN] % 3 - 1) * 2.0**-22)
    return led(z / 16 * THRESHOLD, near)


def one_large(z: Array, words: Array) -> Array:
    """One element in some runs is much larger than the others."""
    return np.where(words % (2 * RUN) == 0, np.copysign(3e4, z), z / 1024)


def scaled(low: int, high: int) -> Kind:
    """Every run under a power of two of its own."""

    def made(z: Array, words: Array) -> Array:
        exponents = words[:, ::RUN] % (high - low) + low
        return np.ldexp(z, np.repeat(exponents, RUN, axis=1).astype(np.int32))

    return made


# Those whose codes and squares stay small enough for ggml's own arithmetic.
ORDINARY: tuple[Kind, ...] = (
    lambda z, _: z,
    lambda z, _: np.copysign(0.0, z),
    lambda z, _: np.broadcast_to(np.copysign(1.1, z[:, :1]), z.shape),  # constant
    lambda z, _: np.copysign(2.5, z),  # the first is the peak
    lambda z, _: np.abs(z) + 1,
    lambda z, _: -np.abs(z) - 30,
    lambda z, words: np.where(words % 7 == 0, z, 0),
    halves(-8, 8, -8),
    halves(-16, 16, 16),
    halves(-127, 127, 127),
    halves(0, 15, 0),
    halves(-1, 1, 1),
    middles(NONLINEAR, -127),
    middles(NONLINEAR, 113),
    middles(DOUBLED, 12),
    one_large,
    below_powers(-110, 40),
    eight_bit_scales,
    thresholds,
    scaled(-12, 4),
)
KINDS: tuple[Kind, ...] = (
    *ORDINARY,
    below_powers(40, 127),
    scaled(-60, 20),
    scaled(-150, -120),  # scales are subnormal, and their inverses infinite
    scaled(14, 27),  # scales are infinite as float16
    scaled(60, 126),  # squares are infinite
    marked((np.inf, -np.inf), 23),
    marked((np.nan, np.nan), 11),
    marked((np.nan, np.inf), 3),
    lambda z, _: led(z, np.nan),
    lambda z, _: np.full_like(z, np.nan),
)


def values(kinds: tuple[Kind, ...], count: int, elements: int, seed: int) -> Array:
    """So many blocks of each kind, as float64: an array for each."""
    words = hashed(seed, count * elements)
    z = bell(words).reshape(count, elements)
    small = field(words, 20, 16).reshape(count, elements)
    return np.stack([kind(z, small) for kind in kinds])


def hostile(count: int, elements: int, dtype: str, seed: int) -> Array:
    """So many blocks, every third of them a patchwork of kinds."""
    every = values(KINDS, count, elements, seed)
    runs = field(hashed(seed, count * elements), 4, 12).reshape(count, elements)[:, ::RUN]
    block = (np.arange(count) + seed)[:, None]
    kind = (block + np.where(block % 3 == 2, runs, 0)) % len(KINDS)
    chosen = np.take_along_axis(every, np.repeat(kind, RUN, axis=1)[None], axis=0)[0]
    largest = FLOATS[dtype].largest
    return narrowed(np.where(np.isinf(chosen), chosen, np.clip(chosen, -largest, largest)), dtype)
