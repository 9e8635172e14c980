"""The fixed problems of `blockwise_dequantize`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.cases import NESTED, TO_ELEMENTS, Choices, Place, Sample
from planq.audit.ops.codebook.reference import Problem


def blockwise_dequantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """The way back."""
    output_dtype, (codes, book), _ = kind
    return BlockwiseDequantizeProblem(
        shape=place[0],
        input_dtype=codes,
        output_dtype=output_dtype,
        block_size=place[1],
        absmax_dtype=chooser.absmax_dtype(output_dtype),
        nested_block_size=chooser.pick(NESTED),
        **chooser.coded(codes, book),
    )


SAMPLE = Sample(blockwise_dequantize_problem, TO_ELEMENTS, 7)
