"""`pack_int4` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.packing.int4 import Problem
from planq.audit.reference.formats import Array, pack_nibbles


def pack(problem: Problem, codes: Array) -> Array:
    """Byte j along the axis holds codes 2j and 2j+1, modulo 16; a spare nibble is 0."""
    rows = np.moveaxis(codes, problem.axis, -1)
    return np.moveaxis(pack_nibbles(rows, problem.nibble_order), -1, problem.axis).copy()
