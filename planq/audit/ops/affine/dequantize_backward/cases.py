"""The fixed problems of `dequantize_backward`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.affine.cases import Choices, Place, Sample
from planq.audit.ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.reference.formats import INPUT_DTYPES


def dequantize_backward_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The gradient of the same."""
    return DequantizeBackwardProblem(place[1], place[0], chooser.scale_dtype(), kind)


SAMPLE = Sample(dequantize_backward_problem, list(INPUT_DTYPES), 34)
