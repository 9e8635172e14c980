"""`linear_w8a8` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.affine.reference import fma
from planq.audit.ops.linear.products import codes, fused, logical, matmul, named, stored, wrapped
from planq.audit.reference.formats import STORAGE, Array, Arrays, narrowed
from planq.audit.reference.inputs import field, hashed, make

BITSANDBYTES_FACTOR = np.array(0x38820610, np.uint32).view(np.float32)
# Kinds of scales, biases and residuals.
NUMBERS = {"any": "normal", "ends": "finite", "sparse": "mixed", "lowest": "huge"}


@dataclass(frozen=True)
class LinearProblem:
    """One linear layer of codes."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    output_dtype: str = "float32"
    input_dtype: str = "int8"
    weight_dtype: str = "int8"
    input_scope: tuple[Any, ...] = ("token",)
    weight_scope: tuple[Any, ...] = ("channel", 0)
    input_mode: str = "symmetric"
    weight_mode: str = "symmetric"
    scale_dtype: str | None = None
    bias_dtype: str | None = None
    residual_dtype: str | None = None
    convention: str = "planq"

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
    def size(self) -> int:
        """Multiplications."""
        return math.prod(self.input_shape) * self.weight_shape[0]

    @property
    def compute(self) -> Any:
        """The compute type C."""
        return np.float64 if self.output_dtype == "float64" else np.float32

    @property
    def scales(self) -> str:
        """What scales are stored in."""
        return self.scale_dtype or np.dtype(self.compute).name

    def with_rows(self, rows: int) -> LinearProblem:
        """The same with another m."""
        return replace(self, input_shape=(*self.input_shape[:-2], rows, self.terms))

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = dict(values)
        by_row = ["input_sum"]
        if self.input_scope[0] == "token":
            by_row += ["input_scale", "input_zero_point"]
        for name in set(by_row) & set(values):
            made[name] = np.ascontiguousarray(values[name][..., piece])
        for name in {"input", "output", "residual"} & set(values):
            made[name] = np.ascontiguousarray(values[name][..., piece, :])
        return made

    def parameters(self, side: str) -> tuple[int, ...]:
        """The shape of a side's scales."""
        if side == "input":
            return self.input_shape[:-1] if self.input_scope[0] == "token" else (1,)
        return self.weight_shape[:1] if self.weight_scope[0] == "channel" else (1,)

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Codes, scales and what else the fields ask for."""
        a = codes(self.input_dtype, self.input_shape, kind, seed)
        w = codes(self.weight_dtype, self.weight_shape, kind, seed + 1000)
        given = {"input": stored(a, self.input_dtype), "weight": stored(w, self.weight_dtype)}
        numbers = NUMBERS[kind]
        for number, side in enumerate(("input", "weight")):
            scale = make(numbers, self.parameters(side), self.scales, seed + 2000 + number)
            given[f"{side}_scale"] = scale
        if self.input_mode == "asymmetric":
            given["input_zero_point"] = self.zero_points("input", kind, seed + 3000)
            given["weight_sum"] = wrapped(w.sum(axis=-1))
        if self.weight_mode == "asymmetric":
            given["weight_zero_point"] = self.zero_points("weight", kind, seed + 4000)
            given["input_sum"] = wrapped(np.asarray(a.sum(axis=-1)))
        if self.bias_dtype:
            given["bias"] = make(numbers, self.weight_shape[:1], self.bias_dtype, seed + 5000)
        if self.residual_dtype:
            shape = (*self.input_shape[:-1], self.weight_shape[0])
            given["residual"] = make(numbers, shape, self.residual_dtype, seed + 6000)
        return given

    def zero_points(self, side: str, kind: str, seed: int) -> Array:
        """Some of the codes; of the kind of ends, any int32."""
        shape = self.parameters(side)
        words = hashed(seed, math.prod(shape))
        if kind == "ends":
            return wrapped(field(words, 0, 32)).reshape(shape)
        dtype = self.input_dtype if side == "input" else self.weight_dtype
        return codes(dtype, shape, "any", seed).astype(np.int32)

    def shifted(self, given: Arrays) -> Array:
        """The sums over what is above the zero points, modulo 2^32."""
        a = logical(given["input"], self.input_dtype, self.terms)
        w = logical(given["weight"], self.weight_dtype, self.terms)
        d = matmul(a, w)
        za = zw = np.zeros(1, np.int64)
        if self.input_mode == "asymmetric":
            za = self.by_row(given["input_zero_point"]).astype(np.int64)
            d = d - za * given["weight_sum"].astype(np.int64)
        if self.weight_mode == "asymmetric":
            zw = given["weight_zero_point"].astype(np.int64)
            d = d - zw * given["input_sum"].astype(np.int64)[..., None]
        with np.errstate(over="ignore"):
            return wrapped(d + self.terms * wrapped(za * zw).astype(np.int64))

    def by_row(self, values: Array) -> Array:
        """A parameter of rows beside the columns."""
        return values[..., None] if self.input_scope[0] == "token" else values

    def expected(self, given: Arrays) -> Arrays:
        """One line of the contract after the other."""
        C = self.compute
        with np.errstate(all="ignore"):
            t = self.shifted(given).astype(C)
            row = self.by_row(given["input_scale"].astype(C))
            column = given["weight_scale"].astype(C)
            bias = given["bias"].astype(C) if self.bias_dtype else None
            if self.convention == "bitsandbytes":
                addend = np.zeros(1, C) if bias is None else bias
                addend = np.broadcast_to(addend, t.shape)
                once = fma if C is np.float64 else fused
                t = once(t * row * column, BITSANDBYTES_FACTOR, addend)
            else:
                t = (row * column) * t if self.convention == "baracuda" else t * row * column
                t = t if bias is None else t + bias
            if self.residual_dtype:
                t = t + given["residual"].astype(C)
            return {"output": narrowed(t, self.output_dtype).astype(STORAGE[self.output_dtype])}
