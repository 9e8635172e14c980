"""`matmul_int8` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.linear.products import (
    MatmulShapes,
    codes,
    logical,
    matmul,
    named,
    stored,
    wrapped,
)
from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True)
class MatmulProblem(MatmulShapes):
    """One product of matrices of codes, or of batches of them."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    input_dtype: str = "int8"
    weight_dtype: str = "int8"
    output_dtype: str = "int32"
    transpose_input: bool = False
    transpose_weight: bool = False

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return named(self)

    def matrix(self, values: Array) -> Array:
        """The input's integers, (..., m, k)."""
        made = logical(values, self.input_dtype, self.input_shape[-1])
        return np.swapaxes(made, -1, -2) if self.transpose_input else made

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = dict(values)
        if "input" in values:
            whole = logical(values["input"], self.input_dtype, self.input_shape[-1])
            rows = whole[..., piece] if self.transpose_input else whole[..., piece, :]
            made["input"] = stored(rows, self.input_dtype)
        if "output" in values:
            made["output"] = np.ascontiguousarray(values["output"][..., piece, :])
        return made

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Codes of both sides."""
        sides: tuple[tuple[str, tuple[int, ...], str, int], ...] = (
            ("input", self.input_shape, self.input_dtype, seed),
        )
        sides += (("weight", self.weight_shape, self.weight_dtype, seed + 1000),)
        return {
            name: stored(codes(dtype, shape, kind, own), dtype) for name, shape, dtype, own in sides
        }

    def expected(self, given: Arrays) -> Arrays:
        """The sums modulo 2^32, or the nearest int8."""
        w = logical(given["weight"], self.weight_dtype, self.weight_shape[-1])
        w = np.swapaxes(w, -1, -2) if self.transpose_weight else w
        sums = wrapped(matmul(self.matrix(given["input"]), w))
        if self.output_dtype == "int8":
            sums = np.clip(sums, -128, 127).astype(np.int8)
        return {"output": sums}
