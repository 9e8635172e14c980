"""The fixed problems of `dequantize`."""

from __future__ import annotations

import itertools
from typing import Any

from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.cases import OUTPUTS, Case, Choices, Place, Sample, Shapes, listed, wide
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import INPUT_DTYPES

PAIRS: tuple[tuple[ScopeSpec, Shapes], ...] = (
    (("pair",), ((7, 48), (3, 5, 130), (33,), (1, 1), (2, 1, 3, 17), (64, 1))),
)
WIDE_PAIRS: tuple[Place, ...] = ((("pair",), (700, 512)), (("pair",), (3, 33001)))
INT32 = ("int32", "low_first")
CODES_TO_FLOATS: list[Any] = list(itertools.product((*OUTPUTS, INT32), INPUT_DTYPES))
SUMS_TO_FLOATS: list[Any] = list(itertools.product((INT32,), INPUT_DTYPES))


def dequantize_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """`dequantize` from one type to another."""
    (input_dtype, order), output_dtype = kind
    wide_codes = input_dtype == "int32"
    mode = "symmetric" if wide_codes else chooser.code_mode(input_dtype)
    return DequantizeProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        input_dtype,
        output_dtype,
        mode,
        chooser.zero_point_dtype(mode, input_dtype),
        order,
        chooser.pick((None, None, *INPUT_DTYPES)) if wide_codes else None,
    )


CONVENTIONS: list[Any] = list(
    itertools.product((("bitsandbytes", "int32"), ("baracuda", "int32")), INPUT_DTYPES)
)
ROWS: list[Any] = list(itertools.product((("bitsandbytes", "int8"),), INPUT_DTYPES))
TOKENS: tuple[tuple[ScopeSpec, Shapes], ...] = ((("token",), PAIRS[0][1]),)
WIDE_TOKENS: tuple[Place, ...] = ((("token",), (700, 512)), (("token",), (3, 33001)))


def convention_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """`dequantize` as another library does it."""
    (convention, input_dtype), output_dtype = kind
    return DequantizeProblem(
        place[1],
        place[0],
        chooser.scale_dtype(),
        input_dtype,
        output_dtype,
        bias_dtype=chooser.pick((None, *INPUT_DTYPES)) if input_dtype == "int32" else None,
        convention=convention,
    )


FORMATS: list[Any] = list(
    itertools.product(
        (
            ("mx", "float4_e2m1fn", "low_first"),
            ("mx", "float4_e2m1fn", "high_first"),
            ("mx", "float8_e4m3fn", "low_first"),
            ("mx", "float8_e5m2", "low_first"),
            ("nvfp4", "float4_e2m1fn", "low_first"),
            ("nvfp4", "float4_e2m1fn", "high_first"),
        ),
        microscaling.INPUTS,
    )
)
FORMAT_SHAPES: Shapes = (
    *((7, 64), (3, 5, 96), (33,), (1, 1), (2, 1, 3, 17), (64, 32), (300, 80), (5, 1000), (40, 512)),
    *((9, 4096), (3, 31)),
)
WIDE_FORMAT_SHAPES: Shapes = ((700, 1024), (3, 33001), (1, 2**20))


def format_problem(chooser: Choices, place: Place, kind: Any) -> Problem:
    """Codes of MX and NVFP4."""
    (convention, input_dtype, order), output_dtype = kind
    group = ("group", microscaling.GROUP[convention], -1)
    return DequantizeProblem(
        place[1],
        group,
        None,
        input_dtype,
        output_dtype,
        nibble_order=order,
        convention=convention,
    )


class DequantizeSample(Sample):
    """With a scale for each row and each column of accumulators, and formats of groups."""

    def others(self) -> list[Case]:
        """Small problems and large ones."""
        pairs = listed(self.make, SUMS_TO_FLOATS, 12, PAIRS)
        pairs += wide(self.make, SUMS_TO_FLOATS, WIDE_PAIRS)
        for kinds, places, large in (
            (CONVENTIONS, PAIRS, WIDE_PAIRS),
            (ROWS, TOKENS, WIDE_TOKENS),
        ):
            pairs += listed(convention_problem, kinds, 6, places)
            pairs += wide(convention_problem, kinds, large)
        pairs += listed(format_problem, FORMATS, 7, ((("group",), FORMAT_SHAPES),))
        for shape in WIDE_FORMAT_SHAPES:
            pairs += wide(format_problem, FORMATS, ((("group",), shape),) * 4)
        return pairs

    def other_empty_cases(self) -> list[Case]:
        """Formats of groups."""
        return [
            Case(
                format_problem(Choices(seed), (("group",), shape), kind), "mixed", "ordinary", seed
            )
            for seed, (kind, shape) in enumerate(itertools.product(FORMATS, ((0, 64), (3, 0))))
        ]


SAMPLE = DequantizeSample(dequantize_problem, CODES_TO_FLOATS, 6)
