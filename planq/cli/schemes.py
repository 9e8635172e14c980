"""The schemes of ``planq quantize``: which descriptor each gives a weight, and how it is stored."""

from __future__ import annotations

import json
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
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
}

_SUFFIX = {"output": "", "scale": "_scale", "zero_point": "_zero_point"}


class Scheme(StrEnum):
    """What ``--scheme`` takes."""

    INT8_CHANNEL = "int8-channel"
    INT8_TENSOR = "int8-tensor"
    INT4_GROUP128 = "int4-group128"
    FP8_CHANNEL = "fp8-channel"


_SHARED_SCALE = {
    Scheme.INT8_CHANNEL: (planq.DType.INT8, planq.Scope.channel(0)),
    Scheme.INT8_TENSOR: (planq.DType.INT8, planq.Scope.tensor()),
    Scheme.INT4_GROUP128: (planq.DType.INT4, planq.Scope.group(GROUP_SIZE)),
    Scheme.FP8_CHANNEL: (planq.DType.FLOAT8_E4M3FN, planq.Scope.channel(0)),
}


def is_weight(entry: TensorEntry) -> bool:
    """Whether a scheme applies to a tensor: two axes, and a floating type."""
    return entry.dtype in FLOATING and len(entry.shape) == 2


def describe(scheme: Scheme, entry: TensorEntry) -> planq.DynamicRangeQuantizeDescriptor:
    """Returns the descriptor that a scheme gives one weight."""
    output_dtype, scope = _SHARED_SCALE[scheme]
    return planq.DynamicRangeQuantizeDescriptor(
        shape=entry.shape,
        input_dtype=FLOATING[entry.dtype],
        output_dtype=output_dtype,
        scope=scope,
        mode=planq.Mode.SYMMETRIC,
        nibble_order=planq.NibbleOrder.LOW_FIRST,
    )


def operand_bytes(spec: planq.OperandSpec) -> int:
    """Returns the size of an operand in memory."""
    return math.prod(spec.shape) * STORAGE[spec.storage][1]


def stored(name: str, desc: planq.DynamicRangeQuantizeDescriptor) -> dict[str, TensorEntry]:
    """Returns the tensors of the output file that one weight becomes, by operand.

    A scale per channel is stored as a column, the form in which it multiplies the codes by
    broadcasting and in which loaders of quantized checkpoints expect it.

    Args:
        name: The weight's name.
        desc: Its descriptor.
    """
    entries = {}
    for spec in desc.operands().values():
        if spec.role != "output":
            continue
        shape = spec.shape
        if spec.name != "output" and desc.scope.kind == "channel":
            shape = (*shape, 1)
        entries[spec.name] = TensorEntry(
            name + _SUFFIX[spec.name], STORAGE[spec.storage][0], shape, operand_bytes(spec)
        )
    return entries


def facts(desc: planq.DynamicRangeQuantizeDescriptor) -> str:
    """Returns as JSON what the weights of a file have in common.

    That is the descriptor but for the shape, and the types that follow the weight's own.

    Args:
        desc: The descriptor of any of them.
    """
    fields = json.loads(desc.to_json())
    for own in ("shape", "input_dtype", "scale_dtype"):
        del fields[own]
    return json.dumps(fields, sort_keys=True)
