"""The schemes of ``planq quantize``: which descriptor each gives a weight."""

from __future__ import annotations

import math
from enum import StrEnum

import planq
from planq.cli.checkpoint import TensorEntry

GROUP_SIZE = 128

# The floating types that a scheme quantizes: the file format's name and planq's.
FLOATING = {
    "F16": planq.DType.FLOAT16,
    "BF16": planq.DType.BFLOAT16,
    "F32": planq.DType.FLOAT32,
    "F64": planq.DType.FLOAT64,
}

# Storage types of plan operands: the file format's name and the bytes of an item.
STORAGE = {
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "int32": ("I32", 4),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
}

# What makes the codes: the weight's own ranges, or given ones.
Quantizing = planq.DynamicRangeQuantizeDescriptor | planq.QuantizeDescriptor


class Scheme(StrEnum):
    """What ``--scheme`` takes."""

    INT8_CHANNEL = "int8-channel"
    INT8_TENSOR = "int8-tensor"
    UINT8_CHANNEL = "uint8-channel"
    INT4_GROUP128 = "int4-group128"
    FP8_CHANNEL = "fp8-channel"


_SYMMETRIC, _ASYMMETRIC = planq.Mode.SYMMETRIC, planq.Mode.ASYMMETRIC

_CODES = {
    Scheme.INT8_CHANNEL: (planq.DType.INT8, planq.Scope.channel(0), _SYMMETRIC),
    Scheme.INT8_TENSOR: (planq.DType.INT8, planq.Scope.tensor(), _SYMMETRIC),
    Scheme.UINT8_CHANNEL: (planq.DType.UINT8, planq.Scope.channel(0), _ASYMMETRIC),
    Scheme.INT4_GROUP128: (planq.DType.INT4, planq.Scope.group(GROUP_SIZE), _SYMMETRIC),
    Scheme.FP8_CHANNEL: (planq.DType.FLOAT8_E4M3FN, planq.Scope.channel(0), _SYMMETRIC),
}


def is_weight(entry: TensorEntry) -> bool:
    """Whether a scheme applies to a tensor: two axes, and a floating type."""
    return entry.dtype in FLOATING and len(entry.shape) == 2


def describe(scheme: Scheme, entry: TensorEntry, *, calibrated: bool = False) -> Quantizing:
    """Returns the descriptor that a scheme gives one weight.

    Args:
        scheme: How weights are quantized.
        entry: The weight.
        calibrated: Whether its scales are given; else they are measured.
    """
    output_dtype, scope, mode = _CODES[scheme]
    operator = planq.QuantizeDescriptor if calibrated else planq.DynamicRangeQuantizeDescriptor
    return operator(
        shape=entry.shape,
        input_dtype=FLOATING[entry.dtype],
        output_dtype=output_dtype,
        scope=scope,
        mode=mode,
        nibble_order=planq.NibbleOrder.LOW_FIRST,
    )


def operand_bytes(spec: planq.OperandSpec) -> int:
    """Returns the size of an operand in memory."""
    return math.prod(spec.shape) * STORAGE[spec.storage][1]
