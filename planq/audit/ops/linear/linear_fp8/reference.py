"""`linear_fp8` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planq.audit.ops.linear.float_layers import (
    ADDENDS,
    FACTORS,
    FLOOR,
    FloatLayer,
    addends,
    finished,
    products,
    scaled,
    with_addends,
)
from planq.audit.ops.linear.float_sums import SLICE, slices, tensor_sm90
from planq.audit.ops.linear.products import fused
from planq.audit.promises import LARGEST_SUM, Sums
from planq.audit.reference.formats import FLOATS, Array, Arrays
from planq.audit.reference.inputs import make

SMALLEST = FLOATS["float32"].smallest_normal
BLOCKS = (("group", SLICE), ("block", SLICE, SLICE))


@dataclass(frozen=True)
class Fp8Problem(FloatLayer):
    """One linear layer of 8-bit floating codes."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    output_dtype: str = "float32"
    input_dtype: str = "float8_e4m3fn"
    weight_dtype: str = "float8_e4m3fn"
    input_scope: tuple[Any, ...] = ("token",)
    weight_scope: tuple[Any, ...] = ("channel", 0)
    accumulation: str = "tensor_sm90"
    bias_dtype: str | None = None
    residual_dtype: str | None = None

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = super().cut(values, piece)
        scale = values.get("input_scale")
        if scale is not None and self.input_scope[0] != "tensor":
            axis = len(self.input_shape) - 2
            made["input_scale"] = np.ascontiguousarray(scale[(slice(None),) * axis + (piece,)])
        return made

    def scales(self, side: str) -> tuple[int, ...]:
        """The shape of a side's scales."""
        slices_of_k = -(-self.terms // SLICE)
        return {
            "token": self.input_shape[:-1],
            "channel": self.weight_shape[:1],
            "tensor": (1,),
            "group": (*self.input_shape[:-1], slices_of_k),
            "block": (-(-self.columns // SLICE), slices_of_k),
        }[self.input_scope[0] if side == "input" else self.weight_scope[0]]

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Codes and scales of both sides, and what is added to their sums."""
        numbers = ADDENDS[kind]
        return {
            "input": make(FACTORS[kind], self.input_shape, self.input_dtype, seed),
            "weight": make(FACTORS[kind], self.weight_shape, self.weight_dtype, seed + 1000),
            "input_scale": make(numbers, self.scales("input"), "float32", seed + 2000),
            "weight_scale": make(numbers, self.scales("weight"), "float32", seed + 3000),
            **addends(self, kind, seed + 4000),
        }

    def joined(self, a: Array, given: Arrays) -> Array:
        """t of slices that join by the scales of their blocks."""
        row = given["input_scale"].reshape(len(a), self.scales("input")[-1])
        column = given["weight_scale"].repeat(SLICE, axis=0)[: self.columns]
        t = np.zeros((len(a), self.columns), np.float32)
        for s, each in enumerate(slices(a, given["weight"])):
            t = fused(each, row[:, None, s] * column[None, :, s], t)
        return t

    def exact_slices(self, given: Arrays, least: float) -> Iterator[Sums]:
        """Of blocks: each slice under the product of its scales."""
        a, w = given["input"], given["weight"]
        column = given["weight_scale"].repeat(SLICE, axis=0)[: self.columns]
        for s in range(-(-self.terms // SLICE)):
            part = slice(s * SLICE, (s + 1) * SLICE)
            scale = given["input_scale"][..., None, s].astype(np.float64) * column[:, s]
            made = products(a[..., part], w[:, part], least)
            under = scaled(made, scale)
            # The product of the scales, too, may lose what is below the floor, or be infinite;
            # or it is 0, of which an infinite sum makes a NaN.
            infinite = ~np.isfinite(made.exact) & (np.abs(scale) < SMALLEST)
            beyond = infinite | ~(np.abs(scale) < LARGEST_SUM)
            lost = np.where(beyond, np.inf, made.magnitude * FLOOR)
            yield Sums(under.exact, under.magnitude + lost)

    def exact_sums(self, given: Arrays, least: float) -> dict[str, Sums]:
        """The outputs in float64."""
        if self.input_scope[0] == "group":
            t = Sums(np.zeros(self.output_shape), np.zeros(self.output_shape))
            for each in self.exact_slices(given, least):
                t = Sums(t.exact + each.exact, t.magnitude + each.magnitude)
            return with_addends(t, given)
        row = given["input_scale"]
        t = products(given["input"], given["weight"], least)
        t = scaled(t, row[..., None] if self.input_scope[0] == "token" else row)
        return with_addends(scaled(t, given["weight_scale"]), given)

    def expected(self, given: Arrays) -> Arrays:
        """One line of the contract after the other."""
        a = given["input"].reshape(int(np.prod(self.input_shape[:-1])), self.terms)
        with np.errstate(all="ignore"):
            if self.input_scope[0] == "group":
                t = self.joined(a, given).reshape(self.output_shape)
            else:
                t = tensor_sm90(a, given["weight"]).reshape(self.output_shape)
                row = given["input_scale"]
                t = t * (row[..., None] if self.input_scope[0] == "token" else row)
                t = t * given["weight_scale"]
            return finished(self, t, given)
