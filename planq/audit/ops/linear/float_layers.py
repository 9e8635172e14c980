"""Layers with floating activations: their extents, their addends and the end of their formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

import planq
from planq.audit.from_reference import HOST_DEVICE, make_descriptor
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.linear.float_sums import ORDERS, SLICE, groups_sm90
from planq.audit.ops.linear.products import ProductTests, named
from planq.audit.ops.packing.pack_weight_4bit.reference import PackProblem, pack, restore
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import Problem as ReorderProblem
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import reorder
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import restore as restore_order
from planq.audit.promises import LARGEST_SUM, Sums
from planq.audit.reference.formats import (
    FLOATS,
    STORAGE,
    Array,
    Arrays,
    narrowed,
    pack_nibbles,
    unpack_nibbles,
)
from planq.audit.reference.inputs import hashed, make
from planq.audit.runner import Bench

# Kinds of factors, and of scales, biases and residuals.
FACTORS = {"any": "normal", "ends": "patterns", "sparse": "mixed", "lowest": "subnormal"}
ADDENDS = {"any": "normal", "ends": "finite", "sparse": "mixed", "lowest": "subnormal"}
# Of scales and zero points of groups.
PARAMETERS = {"any": "ordinary", "ends": "special", "sparse": "powers", "lowest": "far"}


def addends(problem: Any, kind: str, seed: int) -> Arrays:
    """The bias and the residual of a problem, as far as it has them."""
    given: Arrays = {}
    if problem.bias_dtype:
        given["bias"] = make(ADDENDS[kind], (problem.columns,), problem.bias_dtype, seed)
    if problem.residual_dtype:
        shape = problem.output_shape
        given["residual"] = make(ADDENDS[kind], shape, problem.residual_dtype, seed + 1000)
    return given


def finished(problem: Any, t: Array, given: Arrays) -> Arrays:
    """Sums in float32 with their addends, as stored."""
    t = t + given["bias"].astype(np.float32) if problem.bias_dtype else t
    t = t + given["residual"].astype(np.float32) if problem.residual_dtype else t
    return {"output": narrowed(t, problem.output_dtype).astype(STORAGE[problem.output_dtype])}


# --- Sums in float64, and what bounds of their errors are multiples of ----------------------------

# Below float32's normal numbers, what a multiplication loses is no part of its result.
FLOOR = 2.0**-126


@np.errstate(all="ignore")
def products(a: Array, w: Array, least: float) -> Sums:
    """Of (..., m, k) and (..., n, k)."""
    a, w = a.astype(np.float64), w.astype(np.float64)

    def magnitudes(factors: Array) -> Array:
        return np.maximum(np.where(np.isfinite(factors), np.abs(factors), 0.0), least)

    return Sums(a @ np.swapaxes(w, -1, -2), magnitudes(a) @ np.swapaxes(magnitudes(w), -1, -2))


@np.errstate(all="ignore")
def scaled(sums: Sums, scale: Array) -> Sums:
    """The same after a multiplication in float32."""
    scale = scale.astype(np.float64)
    magnitude = sums.magnitude * np.abs(scale) + FLOOR
    lost = ~(np.maximum(sums.magnitude, magnitude) < LARGEST_SUM)
    return Sums(sums.exact * scale, np.where(lost, np.inf, magnitude))


@np.errstate(all="ignore")
def grouped(a: Array, v: Array, scale: Array, size: int, least: float) -> Sums:
    """The same of values apart from their scales, which meet the sum of a run."""
    shape = (a.shape[0], v.shape[0])
    exact, magnitude, largest = np.zeros(shape), np.full(shape, FLOOR), np.zeros(shape)
    run = min(size, SLICE)
    for k in range(0, a.shape[1], run):
        part = products(a[:, k : k + run], v[:, k : k + run], least)
        own = scale[:, k // size].astype(np.float64)
        exact = exact + part.exact * own
        magnitude = magnitude + part.magnitude * np.abs(own)
        largest = np.maximum(largest, part.magnitude)
    lost = ~(np.maximum(largest, magnitude) < LARGEST_SUM)
    return Sums(exact, np.where(lost, np.inf, magnitude))


@np.errstate(all="ignore")
def with_addends(sums: Sums, given: Arrays) -> dict[str, Sums]:
    """The outputs before their rounding."""
    for name in {"bias", "residual"} & set(given):
        addend = given[name].astype(np.float64)
        finite = np.where(np.isfinite(addend), np.abs(addend), 0.0)
        sums = Sums(sums.exact + addend, sums.magnitude + finite)
    return {"output": sums}


def run(operator: str, inputs: Arrays, **fields: Any) -> Array:
    """The output of another operator on the host."""
    bench = Bench(HOST_DEVICE, make_descriptor(operator, **fields))
    bench.load(inputs)
    bench.run()
    return bench.outputs()["output"]


class FloatLayer:
    """The extents of a layer; a dataclass has the fields."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    output_dtype: str

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return named(self)

    @property
    def rows(self) -> int:
        """m."""
        return self.input_shape[-2]

    @property
    def terms(self) -> int:
        """k."""
        return self.input_shape[-1]

    @property
    def columns(self) -> int:
        """n."""
        return self.weight_shape[0]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(..., m, n)."""
        return (*self.input_shape[:-1], self.columns)

    @property
    def size(self) -> int:
        """Multiplications."""
        return math.prod(self.input_shape) * self.columns

    def with_rows(self, rows: int) -> Any:
        """The same with another m."""
        shape = (*self.input_shape[:-2], rows, self.terms)
        return replace(cast("Any", self), input_shape=shape)

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = dict(values)
        for name in {"input", "output", "residual"} & set(values):
            made[name] = np.ascontiguousarray(values[name][..., piece, :])
        return made


@dataclass(frozen=True)
class FloatLayerTests(ProductTests):
    """A layer against its NumPy reference."""

    bounded: tuple[str, ...] = ("mma", "groups_mma")  # methods that promise a bound

    def bounded_math(self, problem: Any) -> planq.MathPrecision:
        """Of these methods: 8-bit floating codes are numbers of float16."""
        if problem.input_dtype == "bfloat16":
            return planq.MathPrecision.TENSOR_CORE_BF16
        return planq.MathPrecision.TENSOR_CORE_F16

    def math(self, problem: Any) -> planq.MathPrecision:
        """What the order of sums is named after."""
        if problem.accumulation == "lanes":
            return planq.MathPrecision.F32
        return {
            "float16": planq.MathPrecision.TENSOR_CORE_F16,
            "bfloat16": planq.MathPrecision.TENSOR_CORE_BF16,
            "float8_e4m3fn": planq.MathPrecision.TENSOR_CORE_E4M3,
            "float8_e5m2": planq.MathPrecision.TENSOR_CORE_E5M2,
        }[problem.input_dtype]


class CodedLayer(FloatLayer):
    """A layer whose weights are codes; a dataclass has the fields."""

    input_dtype: str
    code_dtype: str
    weight_dtype: str | None
    weight_scope: tuple[Any, ...]
    weight_mode: str
    nibble_order: str
    weight_layout: str
    accumulation: str
    scale_dtype: str
    zero_point_dtype: str

    @property
    def values(self) -> str:
        """What codes are given back in."""
        return self.weight_dtype or self.input_dtype

    @property
    def has_float_codes(self) -> bool:
        """Whether codes are floats of 4 or 8 bits."""
        return self.code_dtype.startswith("float")

    @property
    def has_bytes(self) -> bool:
        """Whether a code is a byte."""
        return self.code_dtype[-1] != "4" and self.code_dtype != "float4_e2m1fn"

    @property
    def groups(self) -> DequantizeProblem:
        """What gives the integers of groups back, and their zero points; float32 scales."""
        return DequantizeProblem(
            self.weight_shape,
            self.weight_scope,
            input_dtype="uint4" if self.has_float_codes else self.code_dtype,
            output_dtype=self.values,
            mode=self.weight_mode,
            nibble_order=self.nibble_order,
            zero_point_dtype=self.zero_point_dtype,
        )

    def weights(self, kind: str, seed: int) -> Arrays:
        """Codes, scales and zero points."""
        made = affine_inputs.make(self.groups, "any", PARAMETERS[kind], seed)
        names = {"input": "weight", "scale": "weight_scale", "zero_point": "weight_zero_point"}
        given = {names[name]: value for name, value in made.items()}
        if self.code_dtype in FLOATS:
            given["weight"] = make(FACTORS[kind], self.weight_shape, self.code_dtype, seed)
        if self.scale_dtype != "float32":
            given |= self.narrow_scales(kind, given["weight_scale"].shape, seed)
        return given

    def narrow_scales(self, kind: str, shape: tuple[int, ...], seed: int) -> Arrays:
        """Scales of another type than float32; e4m3 has one of the tensor, too."""
        words = hashed(seed + 77, math.prod(shape))
        if self.scale_dtype == "float8_e8m0fnu":
            return {"weight_scale": affine_inputs.powers(PARAMETERS[kind], words).reshape(shape)}
        made = affine_inputs.scales(PARAMETERS[kind], words, FLOATS[self.scale_dtype])
        given = {"weight_scale": made.reshape(shape)}
        if self.scale_dtype == "float8_e4m3fn":
            given["tensor_scale"] = make("normal", (1,), "float32", seed)
        return given

    def codes(self, plain: Array) -> Array:
        """Row-major codes as (n, k), a byte each."""
        if self.has_bytes:
            return plain.view(np.uint8)
        return unpack_nibbles(plain, self.terms, self.nibble_order)

    def plain(self, codes: Array) -> Array:
        """The other way."""
        if self.has_bytes:
            return codes.view(STORAGE[self.code_dtype])
        return pack_nibbles(codes, self.nibble_order)

    def laid_out(self, plain: Array) -> Array:
        """Row-major codes in the layout, by the reference of the operator that makes it."""
        if self.weight_layout == "row_major":
            return plain
        codes = self.codes(plain)
        matrix = codes if self.has_bytes else pack_nibbles(codes, "low_first")
        if self.weight_layout == "packed":
            return pack(PackProblem(self.weight_shape, self.code_dtype), matrix)
        n, k = self.weight_shape
        return reorder(ReorderProblem((k, n), self.code_dtype, transpose=True), matrix)

    def row_major(self, stored: Array) -> Array:
        """The other way."""
        if self.weight_layout == "row_major":
            return stored
        n, k = self.weight_shape
        if self.weight_layout == "packed":
            matrix = restore(PackProblem((n, k), self.code_dtype), stored)
        else:
            problem = ReorderProblem((k, n), self.code_dtype, transpose=True, inverse=True)
            matrix = restore_order(problem, stored)
        if self.has_bytes:
            return self.plain(matrix.view(np.uint8))
        return self.plain(unpack_nibbles(matrix, k, "low_first"))

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Activations, weights, and what is added to their sums."""
        weights = self.weights(kind, seed + 1000)
        return {
            "input": make(FACTORS[kind], self.input_shape, self.input_dtype, seed),
            **weights,
            "weight": self.laid_out(weights["weight"]),
            **addends(self, kind, seed + 2000),
        }

    def code_values(self, weight: Array) -> Array:
        """What row-major codes stand for, (n, k)."""
        if self.code_dtype == "float4_e2m1fn":
            return microscaling.code_values(self.codes(weight), self.code_dtype)
        if self.has_float_codes:
            return weight.astype(np.float32)
        return self.groups.logical(self.groups.inputs["input"], weight)

    def scale_values(self, given: Arrays) -> Array:
        """The scales in float32."""
        conventions = {"float8_e8m0fnu": "mx", "float8_e4m3fn": "nvfp4"}
        if self.scale_dtype not in conventions:
            return given["weight_scale"].astype(np.float32)
        factor = given["tensor_scale"][0] if "tensor_scale" in given else np.float32(1)
        convention = conventions[self.scale_dtype]
        return microscaling.scale_values(given["weight_scale"], convention, factor)

    @np.errstate(all="ignore")
    def numbers(self, given: Arrays) -> Array:
        """w, as the other operator's reference writes it."""
        scale = self.scale_values(given)
        if self.has_float_codes:
            each = np.repeat(scale, self.segment, axis=1)[:, : self.terms]
            return narrowed(each * self.code_values(given["weight"]), self.values)
        stored = {"input": given["weight"], "scale": scale}
        if "weight_zero_point" in given:
            stored["zero_point"] = given["weight_zero_point"]
        return self.groups.expected(stored)["output"]

    @property
    def has_runs(self) -> bool:
        """Whether values meet their scales as sums."""
        return self.accumulation == "groups_sm90"

    @property
    def segment(self) -> int:
        """Terms that share a scale: those of a group, or all of a channel."""
        return int(self.weight_scope[1]) if self.weight_scope[0] == "group" else self.terms or 1

    def unscaled(self, given: Arrays) -> tuple[Array, Array]:
        """v (n, k) in T, and the scales (n, groups): codes less zero points that have bounds."""
        codes = self.code_values(given["weight"])
        if "weight_zero_point" in given:
            bounds = (-128, 255) if self.has_bytes else (-120, 120)
            shifts = np.clip(given["weight_zero_point"].astype(np.int64), *bounds)
            shifts = shifts if shifts.ndim == 2 else shifts[:, None]
            codes = codes - np.repeat(shifts, self.segment, axis=1)[:, : self.terms]
        scale = self.scale_values(given)
        scale = scale if scale.ndim == 2 else scale[:, None]
        return narrowed(codes.astype(np.float32), self.values), scale

    def rows_of_input(self, given: Arrays) -> Array:
        """(m, k) of all rows."""
        return given["input"].reshape(math.prod(self.input_shape[:-1]), self.terms)

    def factors(self, given: Arrays) -> tuple[Array, Array]:
        """(m, k) of all rows, and w."""
        weight = self.row_major(given["weight"])
        return self.rows_of_input(given), self.numbers({**given, "weight": weight})

    def runs(self, given: Arrays) -> tuple[Array, Array, Array, int]:
        """(m, k) of all rows, values, scales, and for how many terms they are."""
        weight = self.row_major(given["weight"])
        v, scale = self.unscaled({**given, "weight": weight})
        return self.rows_of_input(given), v, scale, self.segment

    def sums(self, given: Arrays) -> Array:
        """t before the addends."""
        if self.has_runs:
            return groups_sm90(*self.runs(given)).reshape(self.output_shape)
        return ORDERS[self.accumulation](*self.factors(given)).reshape(self.output_shape)

    def exact_products(self, given: Arrays, least: float) -> Sums:
        """The same in float64."""
        if self.has_runs:
            made = grouped(*self.runs(given), least)
        else:
            made = products(*self.factors(given), least)
        return Sums(*(each.reshape(self.output_shape) for each in (made.exact, made.magnitude)))

    def exact_sums(self, given: Arrays, least: float) -> dict[str, Sums]:
        """The outputs in float64."""
        return with_addends(self.exact_products(given, least), given)

    def expected(self, given: Arrays) -> Arrays:
        """Weights, sums, addends."""
        with np.errstate(all="ignore"):
            return finished(self, self.sums(given), given)
