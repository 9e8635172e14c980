"""`vectorwise_dequantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.outlier.vectorwise import Problem
from planq.audit.reference.formats import Array, narrowed


def dequantize(problem: Problem, given: dict[str, Array]) -> Array:
    """What codes stand for; the problem's type is that of the elements."""
    c = problem.scalar
    scale = given["scale"].astype(c)
    with np.errstate(all="ignore"):
        if problem.shifted:
            shifted = given["input"].astype(np.int64) - given["zero_point"].astype(np.int64)
            y = shifted.astype(c) / scale
        else:
            y = given["input"].astype(c) / c(127) * scale
        return narrowed(y, problem.dtype)
