"""The fixed problems of `quantize`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.affine.cases import FLOATS_TO_CODES, Choices, Place, Sample
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.reference import Problem


def quantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """`quantize` from one type to another."""
    input_dtype, (output_dtype, order) = kind
    mode = chooser.code_mode(output_dtype)
    return QuantizeProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        input_dtype,
        mode,
        **chooser.code_bounds(output_dtype, mode),
        zero_point_dtype=chooser.zero_point_dtype(mode, output_dtype),
        quotient=chooser.quotient(mode),
        output_dtype=output_dtype,
        nonfinite=chooser.pick(("propagate", "saturate")),
        nibble_order=order,
    )


SAMPLE = Sample(quantize_problem, FLOATS_TO_CODES, 9)
