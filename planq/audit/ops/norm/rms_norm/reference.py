"""`rms_norm` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.quantized_output import Codes, results
from planq.audit.ops.norm.reference import F32, factors, row_sums, weights, with_residual
from planq.audit.reference.formats import Array, narrowed


@dataclass(frozen=True)
class Problem(Codes):
    """Rows and what is done to them: the descriptor's fields, in plain values."""

    shape: tuple[int, ...]
    input_dtype: str
    weight_dtype: str
    output_dtype: str | None = None
    residual_dtype: str | None = None
    weight_offset: float = 0.0
    round_before_weight: bool = False


def rms_norm(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's outputs."""
    x, outputs = with_residual(problem, given)
    t = x * factors(row_sums(x * x), x.shape[-1], given["eps"])
    if problem.round_before_weight:
        t = narrowed(t, problem.input_dtype).astype(F32)
    y = np.asarray(t * weights(problem, given))
    return {**outputs, **results(problem, y, given)}
