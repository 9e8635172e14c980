"""The fixed problems of `quantize_backward`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.affine.cases import FLOATS_TO_CODES, Choices, Place, Sample
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem


def quantize_backward_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The gradient of the same."""
    input_dtype, (output_dtype, _) = kind
    mode = chooser.code_mode(output_dtype)
    return QuantizeBackwardProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        input_dtype,
        mode,
        **chooser.code_bounds(output_dtype, mode),
        zero_point_dtype=chooser.zero_point_dtype(mode, output_dtype),
        quotient=chooser.quotient(mode),
        output_dtype=output_dtype,
    )


SAMPLE = Sample(quantize_backward_problem, FLOATS_TO_CODES, 6)
