"""`layer_norm` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.quantized_output import Codes, results
from planq.audit.ops.affine.reference import fma
from planq.audit.ops.norm.reference import F32, factors, row_sums, weights, with_residual
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem(Codes):
    """Rows and what is done to them: the descriptor's fields, in plain values."""

    shape: tuple[int, ...]
    input_dtype: str
    weight_dtype: str
    output_dtype: str | None = None
    residual_dtype: str | None = None
    weight_offset: float = 0.0
    bias_dtype: str | None = None


def layer_norm(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's outputs."""
    x, outputs = with_residual(problem, given)
    d = x - row_sums(x) / F32(x.shape[-1])
    t, w = d * factors(row_sums(d * d), x.shape[-1], given["eps"]), weights(problem, given)
    if problem.bias_dtype is None:
        y = np.asarray(t * w)
    else:
        y = fma(t, *(np.broadcast_to(own, t.shape) for own in (w, given["bias"].astype(F32))))
    return {**outputs, **results(problem, y, given)}
