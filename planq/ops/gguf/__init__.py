"""The gguf family: blocks of GGUF files."""

from planq.ops.gguf.gguf_dequantize import (
    GgufDequantizeArgs,
    GgufDequantizeDescriptor,
    GgufDequantizePlan,
)
from planq.ops.gguf.gguf_quantize import (
    GgufQuantizeArgs,
    GgufQuantizeDescriptor,
    GgufQuantizePlan,
)
from planq.ops.gguf.linear_gguf import LinearGgufArgs, LinearGgufDescriptor, LinearGgufPlan
from planq.ops.gguf.linear_gguf_merged import (
    LinearGgufMergedArgs,
    LinearGgufMergedDescriptor,
    LinearGgufMergedPlan,
)
from planq.ops.gguf.vocabulary import GgufType

__all__ = [
    "GgufDequantizeArgs",
    "GgufDequantizeDescriptor",
    "GgufDequantizePlan",
    "GgufQuantizeArgs",
    "GgufQuantizeDescriptor",
    "GgufQuantizePlan",
    "GgufType",
    "LinearGgufArgs",
    "LinearGgufDescriptor",
    "LinearGgufMergedArgs",
    "LinearGgufMergedDescriptor",
    "LinearGgufMergedPlan",
    "LinearGgufPlan",
]
