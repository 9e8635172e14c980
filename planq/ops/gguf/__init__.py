"""The gguf family: blocks of GGUF files."""

from planq.ops.gguf.gguf_dequantize import (
    GgufDequantizeArgs,
    GgufDequantizeDescriptor,
    GgufDequantizePlan,
)
from planq.ops.gguf.vocabulary import GgufType

__all__ = [
    "GgufDequantizeArgs",
    "GgufDequantizeDescriptor",
    "GgufDequantizePlan",
    "GgufType",
]
