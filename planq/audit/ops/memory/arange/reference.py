"""`arange` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math

import numpy as np

from planq.audit.ops.memory.elements import Problem, exact, kept
from planq.audit.reference.formats import Array


def arange(problem: Problem, given: dict[str, Array]) -> Array:
    """start + step i, in float64 or modulo 2^64."""
    start, step = (exact(problem, given[name].reshape(1)) for name in ("start", "step"))
    index = np.arange(math.prod(problem.shape)).astype(start.dtype)
    return kept(problem, start + step * index).reshape(problem.shape)
