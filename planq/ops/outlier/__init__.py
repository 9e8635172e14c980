"""The outlier family: a matrix's few large values kept apart from the codes of the others."""

from planq.ops.outlier.llm_int8_quantize import (
    LlmInt8QuantizeArgs,
    LlmInt8QuantizeDescriptor,
    LlmInt8QuantizePlan,
)

__all__ = [
    "LlmInt8QuantizeArgs",
    "LlmInt8QuantizeDescriptor",
    "LlmInt8QuantizePlan",
]
