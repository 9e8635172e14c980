"""`multiply` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.memory.elements import Problem, modulo, stored
from planq.audit.reference.formats import Array


def multiply(problem: Problem, given: dict[str, Array]) -> Array:
    """Products in the compute type, or modulo 2^bits."""
    x, y = given["input"], given["other"]
    if problem.is_integer:
        raw = f"u{x.dtype.itemsize}"
        return modulo(x.view(raw).astype("u8") * y.view(raw).astype("u8"), problem.dtype)
    compute = np.float64 if problem.dtype == "float64" else np.float32
    return stored(x.astype(compute) * y.astype(compute), problem.dtype)
