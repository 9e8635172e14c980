"""Sums of floating products in the orders that have a name, from the numeric contract alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isinf, isnan, nan, trunc

import numpy as np

from planq.audit.ops.linear.products import fused
from planq.audit.reference.formats import FLOATS, Array

FLOOR = -133  # the least exponent that a group is aligned to
SLICE = 128  # terms of a sum of its own
SPANS = 8  # sums of runs that share a scale; none of a slice is in two of them
LANES, RUN = 32, 32  # sums of LANES, and neighbours that one of them takes
NO_NUMBER = 0x7FFFFFFF  # of a tensor core


@dataclass(frozen=True)
class TensorCore:
    """What an instruction adds at once, and the fraction bits of addends and of results."""

    group: int
    fraction: int
    out: int


def tensor_core(dtype: str) -> TensorCore:
    """The instruction for factors of this type."""
    return TensorCore(32, 13, 13) if dtype.startswith("float8") else TensorCore(16, 25, 23)


# --- One sum, in fractions -----------------------------------------------------------------------


def exponent_of(value: Fraction, lowest: int) -> int:
    """The exponent of the leading bit, and no less than the lowest of a type."""
    value = abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return max(exponent if value >= Fraction(2) ** exponent else exponent - 1, lowest)


def truncated(value: Fraction, quantum: Fraction) -> Fraction:
    """The multiple of the quantum next to the value, toward zero."""
    return trunc(value / quantum) * quantum


def exact_step(
    core: TensorCore,
    accumulator: float,
    a: Sequence[float],
    w: Sequence[float],
    lowest: tuple[int, int],
) -> float:
    """A group of products and an accumulator; NaN where there is no number."""
    products = [
        nan if isnan(x) or isnan(y) or (isinf(x) and y == 0) or (x == 0 and isinf(y)) else x * y
        for x, y in zip(a, w, strict=True)
        if isinf(x) or isinf(y) or isnan(x) or isnan(y)
    ]
    odd = [x for x in (*products, accumulator) if isnan(x) or isinf(x)]
    if odd:
        return odd[0] if len(set(odd)) == 1 and not isnan(odd[0]) else nan
    addends = [(Fraction(accumulator), exponent_of(Fraction(accumulator), -126))]
    for x, y in zip(map(Fraction, a), map(Fraction, w), strict=True):
        addends.append((x * y, exponent_of(x, lowest[0]) + exponent_of(y, lowest[1])))
    addends = [(value, exponent) for value, exponent in addends if value != 0]
    largest = max([FLOOR, *(exponent for _, exponent in addends)])
    unit = Fraction(2) ** (largest - core.fraction)
    total = sum((truncated(value, unit) for value, _ in addends), Fraction(0))
    result = truncated(total, Fraction(2) ** (exponent_of(total, -126) - core.out))
    if abs(result) >= 2**128:
        return inf if result > 0 else -inf
    return float(result)


# --- All sums of a product, in float64 -----------------------------------------------------------

ABSENT = -1000  # below every exponent that two factors have together


def exponents(values: Array, lowest: int) -> Array:
    """Of every number's leading bit, and no less than the lowest."""
    return np.maximum(np.frexp(values)[1] - 1, lowest)


def places(values: Array, lowest: int) -> Array:
    """The same of what a group is aligned to; zeros and what is not finite have no part in it."""
    counts = np.isfinite(values) & (values != 0)
    return np.where(counts, exponents(values, lowest), ABSENT).astype(np.int16)


def without_number(products: Array, accumulator: Array) -> Array:
    """What infinities and NaN among the addends make of each sum; 0 where there are none."""
    plus, minus, lost = (
        of(products).any(axis=0) | of(accumulator) for of in (np.isposinf, np.isneginf, np.isnan)
    )
    made = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    return np.where(lost | (plus & minus), np.nan, made)


@np.errstate(invalid="ignore", over="ignore")
def step(
    core: TensorCore, accumulator: Array, a: Array, w: Array, lowest: tuple[int, int]
) -> Array:
    """One step for rows of both: (m, n) from (m, group) and (n, group). float64 is exact here.

    The group is the first axis of what is made of it: NumPy adds whole planes fast.
    """
    accumulator = accumulator.astype(np.float64)
    products = a.T[:, :, None] * w.T[:, None, :]
    of_products = places(a, lowest[0]).T[:, :, None] + places(w, lowest[1]).T[:, None, :]
    largest = np.maximum(of_products.max(axis=0, initial=FLOOR), places(accumulator, -126))
    finite = all(np.isfinite(each).all() for each in (a, w, accumulator))
    odd = None if finite else without_number(products, accumulator)
    if odd is not None:
        products, accumulator = (np.where(np.isfinite(x), x, 0) for x in (products, accumulator))
    unit = np.ldexp(1.0, core.fraction - largest)
    products *= unit
    total = np.trunc(products, out=products).sum(axis=0) + np.trunc(accumulator * unit)
    total = np.ldexp(total, largest - core.fraction)
    quantum = exponents(total, -126) - core.out
    total = np.ldexp(np.trunc(np.ldexp(total, -quantum)), quantum) + 0.0
    result = np.where(np.abs(total) >= 2.0**128, np.copysign(np.inf, total), total)
    return as_tensor_core(result if odd is None else np.where(odd == 0, result, odd))


def as_tensor_core(values: Array) -> Array:
    """In float32, with a tensor core's NaN."""
    made = np.where(np.isnan(values), 0.0, values).astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(NO_NUMBER), made).view(np.float32)


@np.errstate(invalid="ignore", over="ignore")
def chain(accumulator: Array, a: Array, w: Array) -> Array:
    """Steps over ascending groups of (m, k) and (n, k) as stored; the last group may be short."""
    core = tensor_core(a.dtype.name)
    lowest = FLOATS[a.dtype.name].lowest, FLOATS[w.dtype.name].lowest
    a, w = a.astype(np.float64), w.astype(np.float64)
    for k in range(0, a.shape[-1], core.group):
        group = slice(k, k + core.group)
        accumulator = step(core, accumulator, a[:, group], w[:, group], lowest)
    return accumulator


def slices(a: Array, w: Array) -> Iterator[Array]:
    """The chains of TENSOR_SM90, each (m, n), from (m, k) and (n, k) as they are stored."""
    for k in range(0, a.shape[1], SLICE):
        part = slice(k, k + SLICE)
        zero = np.zeros((a.shape[0], w.shape[0]), np.float32)
        yield chain(zero, a[:, part], w[:, part])


@np.errstate(invalid="ignore", over="ignore")
def tensor_sm90(a: Array, w: Array) -> Array:
    """Accumulation.TENSOR_SM90: (m, n) in float32 from (m, k) and (n, k) as they are stored."""
    total = np.zeros((a.shape[0], w.shape[0]), np.float32)
    for each in slices(a, w):
        total = total + each
    return total


@np.errstate(invalid="ignore", over="ignore")
def lanes(a: Array, w: Array) -> Array:
    """Accumulation.LANES: (m, n) in float32 from (m, k) and (n, k)."""
    a, w = a.astype(np.float32), w.astype(np.float32)
    sums = np.zeros((LANES, a.shape[0], w.shape[0]), np.float32)
    for first in range(0, a.shape[1], LANES * RUN):  # what each lane takes next
        block = slice(first, first + LANES * RUN)
        terms = [side[:, block] for side in (a, w)]
        for i in range(min(RUN, terms[0].shape[1])):
            own = [side[:, i::RUN].T for side in terms]
            count = len(own[0])
            sums[:count] = fused(own[0][:, :, None], own[1][:, None, :], sums[:count])
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return sums[0]


@np.errstate(invalid="ignore", over="ignore")
def groups_sm90(a: Array, v: Array, scale: Array, size: int) -> Array:
    """Accumulation.GROUPS_SM90: (m, n) in float32.

    From (m, k), the unscaled values (n, k) of the same type, and a scale (n, groups) in float32 for
    `size` terms each.
    """
    shape, terms = (a.shape[0], v.shape[0]), a.shape[1]
    span = SLICE * -(-terms // (SPANS * SLICE))
    run = min(size, SLICE)
    total = np.zeros(shape, np.float32)
    for i in range(SPANS):
        acc = np.zeros(shape, np.float32)
        for k in range(i * span, min((i + 1) * span, terms), run):
            part = slice(k, min(k + run, terms))
            p = chain(np.zeros(shape, np.float32), a[:, part], v[:, part])
            acc = fused(p, scale[None, :, k // size], acc)
        total = total + acc
    return total


ORDERS = {"tensor_sm90": tensor_sm90, "lanes": lanes}
