"""The fixed problems of `blockwise_quantize`."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.ops.codebook.cases import NESTED, TO_CODES, Choices, Place, Sample
from planq.audit.ops.codebook.reference import Problem


def blockwise_quantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """Blocks from one type to another."""
    input_dtype, (codes, book), rounding = kind
    given = chooser.pick((False, False, True))
    return BlockwiseQuantizeProblem(
        shape=place[0],
        input_dtype=input_dtype,
        output_dtype=codes,
        block_size=place[1],
        absmax_given=given,
        nested_block_size=None if given else chooser.pick(NESTED),
        rounding=rounding,
        **chooser.quantized(),
        **chooser.coded(codes, book),
    )


SAMPLE = Sample(blockwise_quantize_problem, TO_CODES, 5)
