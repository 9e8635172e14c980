"""What the numeric contract says of a weight under each scheme, and on the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dynamic_range_quantize.reference import (
    Problem,
    Quantized,
    dynamic_range_quantize,
)
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.reference.formats import FLOATS, unpack_nibbles

if TYPE_CHECKING:
    from cli.files import Array

# The type of the codes, what shares a scale, and the mode.
SCHEMES = {
    "int8-channel": ("int8", ("channel", 0), "symmetric"),
    "int8-tensor": ("int8", ("tensor",), "symmetric"),
    "uint8-channel": ("uint8", ("channel", 0), "asymmetric"),
    "int4-group128": ("int4", ("group", 128, -1), "symmetric"),
    "fp8-channel": ("float8_e4m3fn", ("channel", 0), "symmetric"),
}


def measured(values: Array, scheme: str) -> Quantized:
    """Codes and parameters of a weight whose ranges are its own."""
    output_dtype, scope, mode = SCHEMES[scheme]
    problem = Problem(values.shape, values.dtype.name, output_dtype, scope, mode)
    return dynamic_range_quantize(problem, values)


def calibrated(values: Array, scheme: str, low: Array, high: Array) -> Quantized:
    """Codes and parameters of a weight whose ranges are given, one for each scale."""
    output_dtype, scope, mode = SCHEMES[scheme]
    wide = np.float64 if values.dtype == np.float64 else np.float32
    ends = np.stack([low, high], axis=-1).astype(wide)
    parameters = dynamic_range_quantize(
        Problem(ends.shape, ends.dtype.name, output_dtype, ("token",), mode), ends
    )
    problem = QuantizeProblem(
        values.shape, scope, input_dtype=values.dtype.name, mode=mode, output_dtype=output_dtype
    )
    given = {"input": values, "scale": parameters.scale, "zero_point": parameters.zero_point}
    codes = problem.expected({name: data for name, data in given.items() if data is not None})
    return Quantized(codes["output"], parameters.scale, parameters.zero_point)


def restored(result: Quantized, scheme: str, columns: int, dtype: str) -> Array:
    """The weight that codes and parameters stand for, in a floating type."""
    code_dtype, scope, mode = SCHEMES[scheme]
    codes = result.output
    if code_dtype in FLOATS:
        codes = codes.view(FLOATS[code_dtype].dtype)
    problem = DequantizeProblem(
        (codes.shape[0], columns),
        scope,
        scale_dtype=result.scale.dtype.name,
        input_dtype=code_dtype,
        output_dtype=dtype,
        mode=mode,
    )
    given = {"input": codes, "scale": result.scale, "zero_point": result.zero_point}
    return problem.expected({name: data for name, data in given.items() if data is not None})[
        "output"
    ]


def dequantized(result: Quantized, scheme: str, columns: int) -> Array:
    """The same in float64, without the roundings of a restored weight."""
    codes, scale = result.output, result.scale.astype(np.float64)
    if scheme == "int4-group128":
        nibbles = unpack_nibbles(codes, columns, "low_first").astype(np.int64)
        codes = np.where(nibbles > 7, nibbles - 16, nibbles)
        scale = np.repeat(scale, 128, axis=1)[:, :columns]
    if scheme == "fp8-channel":
        codes = codes.view(FLOATS["float8_e4m3fn"].dtype)
    steps = codes.astype(np.float64)
    if result.zero_point is not None:
        steps -= result.zero_point[:, None]
    return steps * (scale[:, None] if scheme.endswith("-channel") else scale)
