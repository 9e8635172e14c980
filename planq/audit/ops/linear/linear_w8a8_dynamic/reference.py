"""`linear_w8a8_dynamic` in NumPy: the references of its parts, one after another."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem as Quantization
from planq.audit.ops.affine.dynamic_range_quantize.reference import dynamic_range_quantize
from planq.audit.ops.linear.linear_w8a8.reference import NUMBERS, LinearProblem
from planq.audit.ops.linear.products import codes, logical, named, stored, wrapped
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.inputs import make


@dataclass(frozen=True)
class DynamicProblem:
    """One layer with floating activations."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    input_dtype: str = "float32"
    weight_dtype: str = "int8"
    output_dtype: str = "float32"
    input_scope: tuple[Any, ...] = ("token",)
    weight_scope: tuple[Any, ...] = ("channel", 0)
    input_mode: str = "symmetric"
    weight_mode: str = "symmetric"
    scale_dtype: str | None = None
    bias_dtype: str | None = None
    residual_dtype: str | None = None
    convention: str = "planq"
    quotient: str = "divide"
    nonfinite: str = "propagate"
    code_dtype: str | None = None

    @property
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
    def layer(self) -> LinearProblem:
        """The layer of the codes."""
        shared = asdict(self)
        for name in ("input_dtype", "quotient", "nonfinite", "code_dtype"):
            del shared[name]
        return LinearProblem(**shared, input_dtype=self.code_dtype or "int8")

    @property
    def quantization(self) -> Quantization:
        """What makes the codes."""
        return Quantization(
            self.input_shape,
            self.input_dtype,
            self.code_dtype or "int8",
            self.input_scope,
            self.input_mode,
            scale_dtype=self.layer.scales,
            quotient=self.quotient,
            nonfinite=self.nonfinite,
        )

    def with_rows(self, rows: int) -> DynamicProblem:
        """The same with another m."""
        return replace(self, input_shape=(*self.input_shape[:-2], rows, self.terms))

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows."""
        return self.layer.cut(values, piece)

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Activations, codes of the weights, and what else the fields ask for."""
        numbers, layer = NUMBERS[kind], self.layer
        w = codes(self.weight_dtype, self.weight_shape, kind, seed + 1000)
        given = {
            "input": make(numbers, self.input_shape, self.input_dtype, seed),
            "weight": stored(w, self.weight_dtype),
            "weight_scale": make(numbers, layer.parameters("weight"), layer.scales, seed + 2000),
        }
        if self.input_mode == "asymmetric":
            given["weight_sum"] = wrapped(w.sum(axis=-1))
        if self.weight_mode == "asymmetric":
            given["weight_zero_point"] = layer.zero_points("weight", kind, seed + 4000)
        if self.bias_dtype:
            given["bias"] = make(numbers, self.weight_shape[:1], self.bias_dtype, seed + 5000)
        if self.residual_dtype:
            shape = (*self.input_shape[:-1], self.weight_shape[0])
            given["residual"] = make(numbers, shape, self.residual_dtype, seed + 6000)
        return given

    def quantized(self, x: Array) -> Arrays:
        """The operands of the layer that the activations become."""
        made = dynamic_range_quantize(self.quantization, x)
        given = {"input": made.output, "input_scale": made.scale}
        if made.zero_point is not None:
            given["input_zero_point"] = made.zero_point
        if self.weight_mode == "asymmetric":
            a = logical(made.output, self.code_dtype or "int8", self.terms)
            given["input_sum"] = wrapped(np.asarray(a.sum(axis=-1)))
        return given

    def expected(self, given: Arrays) -> Arrays:
        """One part after the other."""
        return self.layer.expected({**given, **self.quantized(given["input"])})
