"""The fixed problems of `fake_quantize_backward`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.affine.cases import Choices, Place, Sample
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.reference.formats import INPUT_DTYPES


def fake_quantize_backward_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The gradient of the same with given parameters."""
    mode = chooser.pick(("symmetric", "asymmetric"))
    return FakeQuantizeBackwardProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        kind,
        mode,
        **chooser.integer_bounds(mode),
        zero_point_dtype=chooser.zero_point_dtype(mode, "int8", "uint8"),
        quotient=chooser.quotient(mode),
    )


SAMPLE = Sample(fake_quantize_backward_problem, list(INPUT_DTYPES), 34)
