"""`dynamic_range_quantize` in NumPy, written from the numeric contract alone.

Nothing here is shared with the library, and nothing is clever: each formula of the contract is a
line or two on arrays of the compute type, whose operations are single IEEE roundings.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.scopes import ScopeSpec, parameter_shape
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    FLOATS,
    INTEGER_RANGES,
    STORAGE,
    Array,
    pack_nibbles,
    round_to,
)

QUOTIENT_LIMIT = 2**30


@dataclass(frozen=True)
class Problem:
    """One quantization, in plain values: what a descriptor says, without the library's types.

    Attributes:
        scope: `("tensor",)`, `("channel", axis)`, `("token",)`, `("group", size, axis)` or
            `("block", rows, columns)`.
    """

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    output_dtype: str = "int8"
    scope: ScopeSpec = ("token",)
    mode: str = "symmetric"
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: str | None = None
    quotient: str = "divide"
    nonfinite: str = "propagate"
    include_zero: bool = True
    nibble_order: str = "low_first"
    convention: str = "planq"
    scale_ub: float | None = None

    @property
    def compute(self) -> Any:
        """The compute type C."""
        return np.float64 if self.input_dtype == "float64" else np.float32

    @property
    def stored_scale(self) -> str:
        """The dtype of the stored scales."""
        default = {
            "compressed_tensors": self.input_dtype,
            "ggml": "float16",
            **microscaling.SCALES,
        }
        return self.scale_dtype or default.get(self.convention, np.dtype(self.compute).name)

    @property
    def bounds(self) -> tuple[float, float]:
        """`(q_min, q_max)` with the contract's defaults."""
        lowest: float
        highest: float
        if self.output_dtype in INTEGER_RANGES:
            lowest, highest = INTEGER_RANGES[self.output_dtype]
            all_codes = self.convention != "planq" and (self.convention, self.output_dtype) != (
                "ggml",
                "int8",
            )
            lowest += self.mode == "symmetric" and not all_codes
        else:
            highest = {**FLOATS, **microscaling.CODES}[self.output_dtype].largest
            lowest = -highest
        return (
            lowest if self.q_min is None else self.q_min,
            highest if self.q_max is None else self.q_max,
        )

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """The shape of the scales and zero points."""
        return parameter_shape(self.shape, self.scope)

    @property
    def cuts(self) -> dict[int, int]:
        """The axes that groups or blocks cut, with the size of the pieces."""
        kind, rank = self.scope[0], len(self.shape)
        if kind == "group":
            return {self.scope[2] % rank: self.scope[1]}
        return {rank - 2: self.scope[1], rank - 1: self.scope[2]} if kind == "block" else {}

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        default = asdict(Problem(shape=()))
        parts = ["x".join(map(str, self.shape))]
        for name, value in asdict(self).items():
            if name != "shape" and value != default[name]:
                shown = ".".join(map(str, value)) if name == "scope" else value
                parts.append(f"{name}={shown}")
        return ",".join(parts)


@dataclass(frozen=True)
class Quantized:
    """What the operator must write, as stored: fp8 codes as bytes, 4-bit codes packed."""

    output: Array
    scale: Array
    zero_point: Array | None


def dynamic_range_quantize(
    problem: Problem, x: Array, inverse_tensor_scale: Array | None = None
) -> Quantized:
    """The operator's outputs for input `x`, in the dtypes in which they are stored."""
    if problem.convention in microscaling.GROUP:
        return group_format(problem, x, inverse_tensor_scale)
    if problem.convention == "ggml":
        return ggml_blocks(problem, x)
    with np.errstate(all="ignore"):
        view, axes = segmented(problem, x.astype(problem.compute))
        finite = np.isfinite(view)
        bad = np.asarray(~finite.all(axis=axes, keepdims=True) & (problem.nonfinite == "propagate"))
        lo = np.min(view, axis=axes, keepdims=True, initial=np.inf, where=finite)
        hi = np.max(view, axis=axes, keepdims=True, initial=-np.inf, where=finite)
        nothing = lo > hi
        lo, hi = np.where(nothing, 0, lo), np.where(nothing, 0, hi)
        if problem.mode == "asymmetric":
            scale, zero_point = asymmetric_parameters(problem, lo, hi)
        else:
            scale, zero_point = symmetric_scale(problem, lo, hi), np.zeros(lo.shape, np.int64)
        value = quotient(problem, view, scale, np.maximum(np.abs(lo), np.abs(hi)))
        if problem.output_dtype in INTEGER_RANGES:
            codes = integer_codes(problem, value, zero_point)
            codes = np.where(bad, 0, codes)
        else:
            codes = float8_codes(problem, value)
            codes = np.where(bad, CANONICAL_NAN[problem.output_dtype], codes)
    return Quantized(
        output=stored_codes(problem, codes),
        scale=stored_scale(problem, scale, bad).reshape(problem.parameter_shape),
        zero_point=np.where(bad, 0, zero_point).astype(np.int32).reshape(problem.parameter_shape)
        if problem.mode == "asymmetric"
        else None,
    )


def segmented(problem: Problem, x: Array) -> tuple[Array, tuple[int, ...]]:
    """A view of `x` and the axes over which one segment of it extends."""
    kind, axes = problem.scope[0], tuple(range(x.ndim))
    if kind == "tensor":
        return x, axes
    if kind == "channel":
        return x, tuple(a for a in axes if a != problem.scope[1] % x.ndim)
    if kind == "token":
        return x, axes[-1:]
    split: list[int] = []
    pieces: list[int] = []
    padding = [(0, 0)] * x.ndim
    for axis, n in enumerate(x.shape):
        if axis not in problem.cuts:
            split.append(n)
            continue
        size = min(problem.cuts[axis], max(n, 1))
        padding[axis] = (0, -n % size)
        split += [-(-n // size), size if x.size else 0]
        pieces.append(len(split) - 1)
    # Repeating its last elements completes a smaller last piece and changes no range.
    padded = np.pad(x, padding, mode="edge") if x.size else x
    return padded.reshape(split), tuple(pieces)


def symmetric_scale(problem: Problem, lo: Array, hi: Array) -> Array:
    """`s = 1 if M = 0 else max(fl(M / q_max), smallest normal)`, as stored, in C."""
    C = problem.compute
    M = np.maximum(np.abs(lo), np.abs(hi))
    if problem.convention == "compressed_tensors":
        return compressed_tensors_scale(problem, M)
    if problem.convention == "vllm":
        return vllm_scale(problem, M)
    s = np.where(M == 0, C(1), np.maximum(M / C(problem.bounds[1]), np.finfo(C).smallest_normal))
    return as_stored(problem, s)


def compressed_tensors_scale(problem: Problem, M: Array) -> Array:
    """`fl(M / ((q_max - q_min) / 2))` in the scale dtype, and its epsilon in place of 0, in C."""
    C = problem.compute
    q_min, q_max = problem.bounds
    fmt = FLOATS[problem.stored_scale]
    s = M / C((q_max - q_min) / 2)
    if fmt.precision <= FLOATS[np.dtype(C).name].precision:
        s = round_to(np.minimum(s, C(fmt.largest)).astype(C), fmt)
    return np.where(s == 0, C(2.0 ** (1 - fmt.precision)), s).astype(C)


def vllm_scale(problem: Problem, M: Array) -> Array:
    """`max(fl(min(M, scale_ub) / 448), fl(1 / (448 * 512)))`; without a bound of M itself."""
    C = problem.compute
    bound = C(np.inf if problem.scale_ub is None else problem.scale_ub)
    return np.asarray(np.maximum(np.minimum(M, bound) / C(448), C(1) / C(448 * 512)))


def group_format(problem: Problem, x: Array, inverse_tensor_scale: Array | None) -> Quantized:
    """MX and NVFP4."""
    factor = np.float32(0) if inverse_tensor_scale is None else inverse_tensor_scale[0]
    made = microscaling.quantized(x, problem.output_dtype, problem.convention, factor)
    codes = made.codes
    if problem.output_dtype == "float4_e2m1fn":
        codes = pack_nibbles(codes, problem.nibble_order)
    return Quantized(codes, made.scales.view(STORAGE[problem.stored_scale]), None)


def ggml_blocks(problem: Problem, x: Array) -> Quantized:
    """The codes and scales of Q8_0 (int8) and Q4_0 (int4), blocks of 32 along the last axis."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    bad = ~np.isfinite(blocks).all(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        first = np.abs(blocks).argmax(axis=-1, keepdims=True)
        peak = np.take_along_axis(blocks, first, axis=-1)
        eight = problem.output_dtype == "int8"
        d = np.abs(peak) / np.float32(127) if eight else peak / np.float32(-8)
        inverse = np.float32(1) / d
        inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))
        value = blocks * inverse
        if eight:  # exact in float64
            codes = np.copysign(np.floor(np.abs(value.astype(np.float64)) + 0.5), value)
        else:
            codes = np.minimum(np.trunc(value + np.float32(8.5)), np.float32(15)) - 8
        codes = np.where(bad, 0, codes).astype(np.int8).reshape(x.shape)
        stored = d.astype(np.float16).view(np.uint16)
    nan = np.uint16(CANONICAL_NAN["float16"])
    scale = np.where(bad, nan, stored).astype(np.uint16).view(np.float16)
    if not eight:
        codes = pack_nibbles(codes, problem.nibble_order)
    return Quantized(codes, scale.reshape(problem.parameter_shape), None)


def asymmetric_parameters(problem: Problem, lo: Array, hi: Array) -> tuple[Array, Array]:
    """Scale as stored, in C, and zero point, in int64."""
    C = problem.compute
    q_min, q_max = (int(q) for q in problem.bounds)
    n = C(q_max - q_min)
    if problem.include_zero:
        lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
    whole = (hi - lo) / n
    halved = (hi / 2 - lo / 2) / (n / 2)
    s = np.maximum(np.where(np.isfinite(hi - lo), whole, halved), np.finfo(C).smallest_normal)
    constant = (lo == hi) & (lo != 0)
    s = np.where(constant, np.maximum(np.abs(lo), np.finfo(C).smallest_normal), s)
    s = as_stored(problem, np.where((lo == 0) & (hi == 0), C(1), s))
    zero_point = q_min - clamped_integer(lo / s, 2**60)
    if problem.include_zero:
        return s, np.clip(zero_point, q_min, q_max)
    zero_point = np.where(constant, q_min - np.sign(lo).astype(np.int64), zero_point)
    return s, np.clip(zero_point, -QUOTIENT_LIMIT, QUOTIENT_LIMIT)


def as_stored(problem: Problem, s: Array) -> Array:
    """`s` bounded in C, rounded to the scale dtype, clamped to its normal range, back in C."""
    s = np.minimum(s, np.finfo(problem.compute).max)
    fmt = FLOATS[problem.stored_scale]
    if fmt.precision > FLOATS[np.dtype(problem.compute).name].precision:
        return s
    clamped = np.clip(s, problem.compute(fmt.smallest_normal), problem.compute(fmt.largest))
    return round_to(clamped.astype(problem.compute), fmt)


def quotient(problem: Problem, x: Array, s: Array, M: Array) -> Array:
    """`x / s` in C, as the descriptor's Quotient forms it; a NaN (0 times infinity) counts as 0."""
    C = problem.compute
    if problem.quotient == "divide":
        value = x / s
    elif problem.quotient == "reciprocal":
        value = x * (C(1) / s)
    else:
        value = np.where(M == 0, x, x * (C(problem.bounds[1]) / M))
    return np.where(np.isnan(value), C(0), value)


def clamped_integer(value: Array, limit: int) -> Array:
    """`rne(value)` clamped to `±limit`, in int64."""
    return np.clip(np.rint(value), -limit, limit).astype(np.int64)


def integer_codes(problem: Problem, value: Array, zero_point: Array) -> Array:
    """`clamp(rne(x / s) + zero_point)`; an infinite quotient takes the bound on its side."""
    q_min, q_max = (int(q) for q in problem.bounds)
    codes = np.clip(clamped_integer(value, QUOTIENT_LIMIT) + zero_point, q_min, q_max)
    return np.where(np.isposinf(value), q_max, np.where(np.isneginf(value), q_min, codes))


def float8_codes(problem: Problem, value: Array) -> Array:
    """The bytes of `value` clamped and rounded to nearest even; zeros keep their sign.

    What is not above q_min becomes q_min itself, so -0 becomes a q_min of +0.
    """
    q_min, q_max = (problem.compute(q) for q in problem.bounds)
    value = np.where(value > q_max, q_max, np.where(value <= q_min, q_min, value))
    fmt = FLOATS[problem.output_dtype]
    return np.asarray(round_to(value, fmt).astype(fmt.dtype).view(np.uint8))


def stored_codes(problem: Problem, codes: Array) -> Array:
    """Codes of the logical tensor: the padding of last pieces dropped, 4-bit codes packed."""
    if problem.cuts and codes.size:
        joined = list(problem.shape)
        for axis, size in problem.cuts.items():
            joined[axis] += -joined[axis] % min(size, joined[axis])
        codes = codes.reshape(joined)[tuple(slice(0, n) for n in problem.shape)]
    codes = codes.reshape(problem.shape)
    if problem.output_dtype in ("int4", "uint4"):
        return pack_nibbles(codes, problem.nibble_order)
    if problem.output_dtype in INTEGER_RANGES:
        return codes.astype(STORAGE[problem.output_dtype])
    return codes.astype(np.uint8)


def stored_scale(problem: Problem, s: Array, bad: Array) -> Array:
    """Scales in their dtype, with the canonical NaN for a non-finite segment."""
    fmt = FLOATS[problem.stored_scale]
    unsigned = np.dtype(f"u{fmt.dtype.itemsize}")
    lowest = 0.0 if problem.convention == "compressed_tensors" else fmt.smallest_normal
    normal = np.clip(s.astype(np.float64), lowest, fmt.largest)
    stored = normal.astype(fmt.dtype).view(unsigned)
    nan = unsigned.type(CANONICAL_NAN[problem.stored_scale])
    return np.asarray(np.where(bad, nan, stored).view(fmt.dtype))
