"""Seeded operands of the elementwise affine operators: what is hard lies near the scale's steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planq.audit.ops.affine.reference import NIBBLES, Forward, Problem, Tensor
from planq.audit.reference import inputs
from planq.audit.reference.formats import (
    FLOATS,
    INTEGER_RANGES,
    STORAGE,
    Array,
    Arrays,
    Float,
    bits,
)
from planq.audit.reference.inputs import field, hashed, rounded

INT32 = (-(2**31), 2**31 - 1)
FAR = (2**30, -(2**30), 2**30 + 1, 2**31 - 1, -(2**31), 2**24 + 1, -1000, 300)
HARD_INT32 = (*INT32, 0, 2**24 + 1, -(2**24) - 3, 2**30, 2**31 - 65, -(2**31) + 1)


def pick(table: tuple[float, ...], words: Array, low: int) -> Array:
    """An entry of the table for each word."""
    return np.asarray(np.array(table)[field(words, low, 16) % len(table)])


def as_stored(values: Array, fmt: Float) -> Array:
    """float64 values rounded to the format; infinities and NaN stay."""
    finite = np.isfinite(values)
    stored = rounded(np.where(finite, values, 0), fmt)
    return np.where(finite, stored, np.where(finite, 0, values).astype(fmt.dtype))


def scales(kind: str, words: Array, fmt: Float) -> Array:
    """Positive scales of usual size, powers of two, or every second one peculiar."""
    power = np.ldexp(1.0, field(words, 24, 4) - 10)
    if kind == "powers":
        return as_stored(power, fmt)
    usual = (1 + field(words, 0, 23) * 2.0**-23) * power
    if kind != "special":
        return as_stored(usual, fmt)
    least = fmt.smallest_normal * 2.0 ** (1 - fmt.precision)
    tiny = (least, 3 * least, fmt.smallest_normal, fmt.smallest_normal / 2, 2.0**-100)
    odd = (0.0, -0.0, math.inf, -math.inf, math.nan, -1.5, -0.375, 2.0**100, fmt.largest, *tiny)
    return as_stored(np.where(field(words, 30, 1) == 1, pick(odd, words, 31), usual), fmt)


def powers(kind: str, words: Array) -> Array:
    """Scales that are powers of two: of usual size, or every second one of any size, or NaN."""
    usual = 117 + field(words, 24, 4)
    odd = pick((0, 1, 2, 126, 252, 253, 254, 255), words, 31)
    anywhere = np.where(field(words, 47, 1) == 1, odd, field(words, 0, 8))
    peculiar = (kind in ("special", "far")) & (field(words, 30, 1) == 1)
    return np.where(peculiar, anywhere, usual).astype(np.uint8).view(STORAGE["float8_e8m0fnu"])


def zero_points(kind: str, words: Array, dtype: str, bounds: tuple[float, float]) -> Array:
    """Zero points inside of the bounds and at their ends, or far away where the type can."""
    lowest, highest = INTEGER_RANGES.get(dtype, INT32)
    low, high = (int(q) for q in bounds)
    inside = low + field(words, 0, 30) % (high - low + 1)
    ends = np.where(field(words, 30, 1) == 0, low, high)
    near = np.where(field(words, 31, 2) == 0, ends, inside)
    if kind not in ("far", "special"):
        return np.clip(near, lowest, highest)
    anywhere = lowest + field(words, 0, 30) * (highest - lowest + 1) // 2**30
    far = pick(FAR, words, 33).astype(np.int64) if dtype == "int32" else anywhere
    far = np.where(field(words, 50, 2) == 0, anywhere, far)
    return np.clip(np.where(field(words, 49, 1) == 0, far, near), lowest, highest)


def integer_quotients(words: Array, bounds: tuple[float, float]) -> Array:
    """Codes within and around the bounds, half of them at the ends, on and beside ties."""
    low, high = bounds
    anywhere = low - 2 + field(words, 0, 20) % int(high - low + 5)
    ends = np.where(field(words, 20, 1) == 0, low, high) + field(words, 21, 2) % 3 - 1
    code = np.where(field(words, 24, 1) == 0, ends, anywhere)
    part = pick((0.0, 0.5, -0.5, 0.25), words, 25)
    return code + np.where(field(words, 41, 1) == 0, part, field(words, 42, 20) * 2.0**-20)


def float8_quotients(words: Array, bounds: tuple[float, float]) -> Array:
    """Numbers of five significant bits, ties of fp8 among them, and values around the bounds."""
    high = math.frexp(bounds[1])[1]
    value = np.ldexp(1 + field(words, 0, 4) / 16, high - field(words, 4, 16) % 24)
    value = np.where(field(words, 24, 1) == 0, value, -value)
    ends = np.where(field(words, 25, 1) == 0, *bounds) * (1 + pick((0, 0, 1, -1), words, 26) / 32)
    return np.where(field(words, 42, 2) == 0, ends, value)


def near(problem: Forward, words: Array, s: Array, z: Array, quotients: Array) -> Array:
    """Elements whose quotients are these codes less the zero point, give or take a last bit."""
    fmt = FLOATS[problem.input_dtype]
    with np.errstate(all="ignore"):
        value = s.astype(np.float64).ravel() * (quotients - z.ravel())
    value = np.where(np.isfinite(value), value, inputs.bell(words))
    stored = rounded(value, fmt)
    moved = bits(stored) + (field(words, 60, 2) % 3 - 1).astype(bits(stored).dtype)
    inner = (value != 0) & (np.abs(value) < fmt.largest)
    raw = np.asarray(np.where(inner, moved, bits(stored)))
    return raw.view(fmt.dtype).reshape(problem.shape)


def elements(problem: Forward, data: str, seed: int, given: Arrays) -> Array:
    """The input of an operator that divides by the scale."""
    if data not in ("near", "wide"):
        return inputs.make(data, problem.shape, problem.input_dtype, seed)
    words = hashed(seed, math.prod(problem.shape))
    make: Callable[[Array, tuple[float, float]], Array] = integer_quotients
    if getattr(problem, "output_dtype", "int8") not in INTEGER_RANGES:
        make = float8_quotients
    quotients = make(words, problem.bounds)
    s = problem.spread(given["scale"])
    return near(problem, words, s, problem.zero_point(given), quotients)


def codes(tensor: Tensor, shape: tuple[int, ...], words: Array) -> Array:
    """Codes of every pattern; the spare nibbles of 4-bit codes hold something too."""
    if tensor.dtype != "int32":
        raw: Array = (words & np.uint64(255)).astype(np.uint8)
        return raw.view(STORAGE[tensor.dtype]).reshape(shape)
    small, whole = field(words, 0, 12) - 2048, field(words, 0, 32) - 2**31
    hard = pick(HARD_INT32, words, 32).astype(np.int64)
    about = np.clip(hard + field(words, 48, 3) - 4, *INT32)
    kind = field(words, 60, 2)
    values = np.select([kind == 0, kind == 1, kind == 2], [small, whole, about], small * 16384)
    return values.astype(np.int32).reshape(shape)


def storage_shape(problem: Problem, tensor: Tensor) -> tuple[int, ...]:
    """The extents of an operand in memory."""
    shape = problem.extents(tensor)
    if tensor.dtype not in NIBBLES or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] // 2))


def operand(problem: Problem, name: str, data: str, parameters: str, words: Array) -> Array:
    """An operand that does not depend on the others."""
    tensor = problem.inputs[name]
    shape = storage_shape(problem, tensor)
    if tensor.dtype == "float8_e8m0fnu":
        return powers(parameters, words).reshape(shape)
    if name in ("scale", "column_scale", "tensor_scale"):
        return scales(parameters, words, FLOATS[tensor.dtype]).reshape(shape)
    if name == "zero_point" and tensor.dtype not in NIBBLES:
        bounds = getattr(problem, "bounds", (-128, 127))
        made = zero_points(parameters, words, tensor.dtype, bounds)
        return made.astype(STORAGE[tensor.dtype]).reshape(shape)
    if name in ("seed", "offset"):
        return words[:1].view(np.int64).reshape(())
    if tensor.dtype in FLOATS and not tensor.dtype.startswith("float8"):
        kind = "mixed" if data in ("near", "wide") else data
        return inputs.KINDS[kind](words, FLOATS[tensor.dtype]).reshape(shape)
    return codes(tensor, shape, words)


def make(problem: Problem, data: str, parameters: str, seed: int) -> Arrays:
    """All input operands as stored.

    `data` is `near`, which puts elements on and beside the steps of their scale, or a kind of
    `planq.audit.reference.inputs`; `parameters` is `ordinary`, `powers`, `special` or `far`.
    """
    made: Arrays = {}
    for number, (name, tensor) in enumerate(problem.inputs.items()):
        if name != "input" or not isinstance(problem, Forward):
            count = math.prod(storage_shape(problem, tensor))
            words = hashed(seed * 16 + number + 1, count)
            made[name] = operand(problem, name, data, parameters, words)
    if isinstance(problem, Forward):
        kind = "mixed" if data == "near" and "scale" not in made else data
        made["input"] = elements(problem, kind, seed, made)
    return made
