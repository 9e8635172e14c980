"""What the references of the elementwise affine operators share, from the numeric contract alone.

Each formula is a line or two on arrays of the compute type, whose operations are single IEEE
roundings.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.affine.scopes import ScopeSpec, expand, parameter_shape
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    FLOATS,
    INTEGER_RANGES,
    STORAGE,
    Array,
    Arrays,
    bits,
    pack_nibbles,
    round_to,
    unpack_nibbles,
)

QUOTIENT_LIMIT = 2**30
BEYOND = 2**40  # no quotient this large has a sum with an int32 zero point in any range of codes
NIBBLES = ("int4", "uint4", "float4_e2m1fn")


@dataclass(frozen=True)
class Tensor:
    """An operand in plain values.

    Attributes:
        dtype: Its logical element type.
        lies: Along what: `elements`, `parameters`, `columns` of the last axis, `scalar`, or `one`,
            which is an axis of one element.
    """

    dtype: str
    lies: str = "elements"


@dataclass(frozen=True)
class Problem:
    """What a descriptor says, without the library's types.

    Attributes:
        scope: As in `planq.audit.ops.affine.scopes`.
        scale_dtype: None is C.
    """

    shape: tuple[int, ...]
    scope: ScopeSpec = ("tensor",)
    scale_dtype: str | None = None

    @property
    def float_dtype(self) -> str:
        """The floating point side of the operator, which decides C."""
        raise NotImplementedError

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The input operands by name."""
        raise NotImplementedError

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The output operands by name."""
        raise NotImplementedError

    def expected(self, given: Arrays) -> Arrays:
        """The outputs as stored, for inputs as stored."""
        raise NotImplementedError

    @property
    def compute(self) -> Any:
        """The compute type C."""
        return np.float64 if self.float_dtype == "float64" else np.float32

    @property
    def stored_scale(self) -> str:
        """The dtype of the stored scales."""
        return self.scale_dtype or np.dtype(self.compute).name

    @property
    def nibbles(self) -> str:
        """The order of 4-bit codes; operators without a choice have the usual one."""
        return str(getattr(self, "nibble_order", "low_first"))

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """The shape of the scales and zero points."""
        return parameter_shape(self.shape, self.scope)

    def extents(self, tensor: Tensor) -> tuple[int, ...]:
        """The logical shape of an operand."""
        return {
            "elements": self.shape,
            "parameters": self.parameter_shape,
            "columns": self.shape[-1:],
            "scalar": (),
            "one": (1,),
        }[tensor.lies]

    def logical(self, tensor: Tensor, stored: Array) -> Array:
        """Values of an operand out of its storage; codes and zero points in int64."""
        shape = self.extents(tensor)
        if tensor.dtype in NIBBLES:
            columns = shape[-1] if shape else 1
            codes = unpack_nibbles(np.atleast_1d(stored), columns, self.nibbles).astype(np.int64)
            signed = np.where(codes > 7, codes - 16, codes) if tensor.dtype == "int4" else codes
            return signed.reshape(shape)
        return stored.astype(np.int64) if tensor.dtype in STORED_INTEGERS else stored

    def stored(self, tensor: Tensor, values: Array) -> Array:
        """The storage of an operand's values."""
        if tensor.dtype in NIBBLES:
            packed = pack_nibbles(np.atleast_1d(values), self.nibbles)
            return packed if self.extents(tensor) else packed.reshape(())
        return values.astype(STORAGE[tensor.dtype], copy=False)

    def spread(self, parameters: Array) -> Array:
        """The parameter of every element."""
        return expand(parameters, self.shape, self.scope)

    def scale(self, given: Arrays, name: str = "scale") -> Array:
        """The scales in C, one a segment."""
        return given[name].astype(self.compute)

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        parts = ["x".join(map(str, self.shape))]
        default = {item.name: item.default for item in fields(self)}
        for name, value in asdict(self).items():
            if default[name] is not MISSING and value != default[name]:
                shown = ".".join(map(str, value)) if name == "scope" else value
                parts.append(f"{name}={shown}")
        return ",".join(parts)


STORED_INTEGERS = ("int8", "uint8", "int32", "int64")


@dataclass(frozen=True)
class Forward(Problem):
    """What the operators that divide by a scale have in common."""

    input_dtype: str = "float32"
    mode: str = "symmetric"
    q_min: float | None = None
    q_max: float | None = None
    zero_point_dtype: str | None = None
    quotient: str = "divide"

    @property
    def float_dtype(self) -> str:
        """The type of the elements."""
        return self.input_dtype

    @property
    def default_bounds(self) -> tuple[float, float]:
        """`(q_min, q_max)` where the problem leaves them open."""
        raise NotImplementedError

    @property
    def bounds(self) -> tuple[float, float]:
        """`(q_min, q_max)`; a bound of -0 is +0."""
        lowest, highest = self.default_bounds
        q_min = lowest if self.q_min is None else self.q_min
        q_max = highest if self.q_max is None else self.q_max
        return q_min + 0.0, q_max + 0.0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Scale and zero point as input operands."""
        scale = {"scale": Tensor(self.stored_scale, "parameters")}
        if self.mode == "symmetric":
            return scale
        return {**scale, "zero_point": Tensor(self.zero_point_dtype or "int32", "parameters")}

    def zero_point(self, given: Arrays) -> Array:
        """The zero point of every element, in int64."""
        if self.mode == "symmetric":
            return np.zeros(self.shape, np.int64)
        tensor = self.parameters["zero_point"]
        return self.spread(self.logical(tensor, given["zero_point"]))

    def divided(self, value: Array, s: Array) -> Array:
        """`value` in C divided by `s`, as the descriptor's Quotient divides."""
        C = self.compute
        value = value.astype(C)
        if self.quotient == "divide":
            return np.asarray(value / s)
        if self.quotient == "reciprocal":
            return np.asarray(value * (C(1) / s))
        q_max = C(self.bounds[1])
        return np.asarray(value * (q_max / (s * q_max)))


def integer_codes(t: Array, z: Array, bounds: tuple[float, float]) -> Array:
    """`clamp(rne(t) + z)`; NaN counts as 0, an infinity takes the bound on its side."""
    return clamped(np.rint(t), z, bounds)


def clamped(whole: Array, z: Array, bounds: tuple[float, float]) -> Array:
    """`clamp(whole + z)` of integers held as floats, themselves clamped to ±2^30 before."""
    q_min, q_max = (int(q) for q in bounds)
    number = np.where(np.isnan(whole), 0, np.clip(whole, -QUOTIENT_LIMIT, QUOTIENT_LIMIT))
    codes = np.clip(number.astype(np.int64) + z, q_min, q_max)
    return np.where(np.isposinf(whole), q_max, np.where(np.isneginf(whole), q_min, codes))


def float8_codes(t: Array, bounds: tuple[float, float], dtype: str, nonfinite: str) -> Array:
    """The bytes of `t` clamped and rounded to nearest even; zeros keep their sign.

    What is not above q_min becomes q_min itself, so -0 becomes a q_min of +0.
    """
    q_min, q_max = (t.dtype.type(q) for q in bounds)
    value = np.where(np.isnan(t), t.dtype.type(0), t)
    value = np.where(value > q_max, q_max, np.where(value <= q_min, q_min, value))
    fmt = FLOATS[dtype]
    codes = round_to(value, fmt).astype(fmt.dtype).view(np.uint8)
    lost = np.isnan(t) & (nonfinite == "propagate")
    return np.where(lost, np.uint8(CANONICAL_NAN[dtype]), codes)


def within(t: Array, z: Array, bounds: tuple[float, float]) -> Array:
    """Whether the unclamped `rne(t) + z` lies in the bounds, both included; NaN and ±inf do not."""
    whole = np.where(np.isfinite(t), np.clip(np.rint(t), -BEYOND, BEYOND), BEYOND)
    code = whole.astype(np.int64) + z
    return (code >= int(bounds[0])) & (code <= int(bounds[1]))


def dequantized(codes: Array, z: Array | int, s: Array) -> Array:
    """`fl(s * fl(q - z))` in C; fp8 codes, which have no zero point, are exact in C."""
    C = s.dtype.type
    steps = codes - z if codes.dtype == np.int64 else codes
    return np.asarray(s * steps.astype(C))


def fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c`, rounded once to the dtype of `a`."""
    wide = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (a, b, c)))
    if a.dtype == np.float64:
        triples = zip(*(each.ravel().tolist() for each in wide), strict=True)
        return np.array([_fused(*each) for each in triples], np.float64).reshape(wide[0].shape)
    # The product is exact. The sum is rounded to odd, so that the next rounding is the only one.
    product, addend = wide[0] * wide[1], wide[2]
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = (bits(total) & np.uint64(1)) == 0
    nearer = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    odd = np.where(np.isfinite(total) & (error != 0) & even, nearer, total)
    return np.asarray(odd.astype(np.float32))


def _fused(a: float, b: float, c: float) -> float:
    """The same of Python's floats, by integers, whose quotient is rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    (a_over, a_under), (b_over, b_under) = a.as_integer_ratio(), b.as_integer_ratio()
    c_over, c_under = c.as_integer_ratio()
    over = a_over * b_over * c_under + c_over * a_under * b_under
    if over == 0:
        return a * b + c if c == 0 else 0.0
    try:
        return over / (a_under * b_under * c_under)
    except OverflowError:
        return math.inf if over > 0 else -math.inf


def ranges_of(dtype: str, mode: str) -> tuple[float, float]:
    """The default bounds of codes of this type."""
    if dtype in INTEGER_RANGES:
        lowest, highest = INTEGER_RANGES[dtype]
        return (-highest if mode == "symmetric" and lowest else lowest), highest
    return -FLOATS[dtype].largest, FLOATS[dtype].largest


@dataclass(frozen=True)
class Coded(Forward):
    """A problem whose codes have a type of their own."""

    output_dtype: str = "int8"

    @property
    def default_bounds(self) -> tuple[float, float]:
        """The code's whole range, without the lowest code of symmetric signed integers."""
        return ranges_of(self.output_dtype, self.mode)


@dataclass(frozen=True)
class Faked(Forward):
    """A problem whose codes are never stored."""

    @property
    def default_bounds(self) -> tuple[float, float]:
        """Those of int8."""
        return (-127 if self.mode == "symmetric" else -128), 127
