"""`unpack_int4` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.packing.int4 import Problem
from planq.audit.reference.formats import Array, unpack_nibbles


def unpack(problem: Problem, packed: Array) -> Array:
    """Codes 2j and 2j+1 are the nibbles of byte j along the axis; int4 is two's complement."""
    rows = np.moveaxis(packed, problem.axis, -1)
    patterns = unpack_nibbles(rows, problem.shape[problem.axis], problem.nibble_order)
    codes = patterns.astype(problem.storage)
    if problem.dtype == "int4":
        codes = np.where(codes >= 8, codes - 16, codes).astype(np.int8)
    return np.moveaxis(codes, -1, problem.axis).copy()
