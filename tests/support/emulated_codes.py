"""Fields of codes for emulated kernels: see tests/support/emulated/codes.h."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from planq.audit.ops.affine.quantized_output import resolved


def codes_of(problem: Any) -> tuple[ctypes.Array[ctypes.c_char_p], ctypes.Array[ctypes.c_double]]:
    """The fields as words and as numbers."""
    scale_dtype, (q_min, q_max) = resolved(problem)
    words = (
        *(problem.output_dtype, problem.norm_dtype or problem.input_dtype, scale_dtype),
        *(problem.scope[0], problem.mode, problem.quotient, problem.nonfinite),
        *(problem.nibble_order, problem.convention),
    )
    size = problem.scope[1] if problem.scope[0] == "group" else 0
    flags = (problem.also_output, problem.scale_given, problem.include_zero)
    bound = math.nan if problem.scale_ub is None else problem.scale_ub
    numbers = (q_min, q_max, size, *flags, bound)
    return (
        (ctypes.c_char_p * len(words))(*(word.encode() for word in words)),
        (ctypes.c_double * len(numbers))(*map(float, numbers)),
    )


def is_fused(problem: Any) -> bool:
    """Whether one kernel does it all."""
    given = not problem.scale_given or problem.scope[0] == "tensor"
    group = problem.scope[1] if problem.scope[0] == "group" else 0
    inside = group % 2 == 1 and group < problem.shape[-1] and problem.output_dtype.endswith("int4")
    in_format = problem.convention in ("mx", "mx_round_up", "nvfp4")
    made = not (in_format and problem.input_dtype == "float32")
    return problem.norm_dtype in (None, problem.input_dtype) and given and made and not inside
