"""The fixed problems of `dequantize_backward`."""

from __future__ import annotations

from typing import Any

from ops.affine.cases import Choices, Place, Sample
from ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from ops.affine.reference import Problem
from reference.formats import INPUT_DTYPES


def dequantize_backward_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The gradient of the same."""
    return DequantizeBackwardProblem(place[1], place[0], chooser.scale_dtype(), kind)


SAMPLE = Sample(dequantize_backward_problem, list(INPUT_DTYPES), 34)
