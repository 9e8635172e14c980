"""The fixed problems of `fake_quantize`."""

from __future__ import annotations

import itertools
from typing import Any

from planq.audit.ops.affine.cases import Choices, Place, Sample
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.reference.formats import INPUT_DTYPES


def fake_quantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """`fake_quantize` with given or computed parameters."""
    input_dtype, dynamic, rounding = kind
    mode = chooser.pick(("symmetric", "asymmetric"))
    narrow = () if dynamic else ("int8", "uint8")
    return FakeQuantizeProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        input_dtype,
        mode,
        **chooser.integer_bounds(mode),
        zero_point_dtype=chooser.zero_point_dtype(mode, *narrow),
        quotient=chooser.quotient(mode),
        nonfinite=chooser.pick(("propagate", "saturate")),
        include_zero=not dynamic or mode == "symmetric" or chooser.pick((True, False)),
        rounding=rounding,
        dynamic=dynamic,
    )


FAKES: list[Any] = list(
    itertools.product(INPUT_DTYPES, (False, True), ("nearest_even", "stochastic"))
)


SAMPLE = Sample(fake_quantize_problem, FAKES, 17)
