"""The fixed problems of `codebook_quantize`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.codebook.cases import TO_CODES, Choices, Place, Sample
from planq.audit.ops.codebook.codebook_quantize.reference import CodebookQuantizeProblem
from planq.audit.ops.codebook.reference import Problem


def codebook_quantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """A tensor from one type to another."""
    input_dtype, (codes, book), rounding = kind
    absmax = chooser.pick(("measured", "given", "none"))
    return CodebookQuantizeProblem(
        shape=place[0],
        input_dtype=input_dtype,
        output_dtype=codes,
        absmax_given=absmax == "given",
        normalized=absmax == "none",
        rounding=rounding,
        **chooser.quantized(),
        **chooser.coded(codes, book),
    )


SAMPLE = Sample(codebook_quantize_problem, TO_CODES, 4)
