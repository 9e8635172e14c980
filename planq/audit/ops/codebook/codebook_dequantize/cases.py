"""The fixed problems of `codebook_dequantize`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.codebook.cases import TO_ELEMENTS, Choices, Place, Sample
from planq.audit.ops.codebook.codebook_dequantize.reference import CodebookDequantizeProblem
from planq.audit.ops.codebook.reference import Problem


def codebook_dequantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The way back of a tensor."""
    output_dtype, (codes, book), _ = kind
    return CodebookDequantizeProblem(
        shape=place[0],
        input_dtype=codes,
        output_dtype=output_dtype,
        normalized=chooser.pick((False, False, True)),
        absmax_dtype=chooser.absmax_dtype(output_dtype),
        **chooser.coded(codes, book),
    )


SAMPLE = Sample(codebook_dequantize_problem, TO_ELEMENTS, 4)
