"""`matmul` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.linear.float_layers import FACTORS, addends, finished, products, with_addends
from planq.audit.ops.linear.float_sums import ORDERS
from planq.audit.ops.linear.products import MatmulShapes, named
from planq.audit.promises import Sums
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.inputs import make


@dataclass(frozen=True)
class FloatMatmulProblem(MatmulShapes):
    """One product of floating matrices, or of batches of them."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    input_dtype: str = "bfloat16"
    output_dtype: str = "float32"
    transpose_input: bool = False
    transpose_weight: bool = False
    accumulation: str = "tensor_sm90"
    bias_dtype: str | None = None
    residual_dtype: str | None = None

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return named(self)

    @property
    def columns(self) -> int:
        """n."""
        return self.weight_shape[-1 if self.transpose_weight else -2]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(..., m, n)."""
        outer = np.broadcast_shapes(self.input_shape[:-2], self.weight_shape[:-2])
        return (*outer, self.rows, self.columns)

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = dict(values)
        for name in {"input", "output", "residual"} & set(values):
            last = name == "input" and self.transpose_input
            rows = values[name][..., piece] if last else values[name][..., piece, :]
            made[name] = np.ascontiguousarray(rows)
        return made

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Factors of both sides, and what is added to their sums."""
        return {
            "input": make(FACTORS[kind], self.input_shape, self.input_dtype, seed),
            "weight": make(FACTORS[kind], self.weight_shape, self.input_dtype, seed + 1000),
            **addends(self, kind, seed + 2000),
        }

    def factors(self, given: Arrays) -> tuple[Array, Array]:
        """(..., m, k) and (..., n, k)."""
        a, w = given["input"], given["weight"]
        a = np.swapaxes(a, -1, -2) if self.transpose_input else a
        w = np.swapaxes(w, -1, -2) if self.transpose_weight else w
        outer = self.output_shape[:-2]
        a, w = (np.broadcast_to(side, (*outer, *side.shape[-2:])) for side in (a, w))
        return a, w

    def exact_sums(self, given: Arrays, least: float) -> dict[str, Sums]:
        """The outputs in float64."""
        return with_addends(products(*self.factors(given), least), given)

    def sums(self, given: Arrays) -> Array:
        """t of every product of the batch."""
        a, w = self.factors(given)
        made = np.zeros(self.output_shape, np.float32)
        for index in np.ndindex(self.output_shape[:-2]):
            made[index] = ORDERS[self.accumulation](a[index], w[index])
        return made

    def expected(self, given: Arrays) -> Arrays:
        """One line of the contract after the other."""
        with np.errstate(all="ignore"):
            return finished(self, self.sums(given), given)
