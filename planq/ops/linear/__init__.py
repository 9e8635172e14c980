"""The linear family: products of quantized matrices."""

from planq.ops.linear.code_sum import CodeSumArgs, CodeSumDescriptor, CodeSumPlan
from planq.ops.linear.grouped_linear import (
    GroupedLinearArgs,
    GroupedLinearDescriptor,
    GroupedLinearPlan,
)
from planq.ops.linear.linear_4bit import Linear4BitArgs, Linear4BitDescriptor, Linear4BitPlan
from planq.ops.linear.linear_fp8 import LinearFp8Args, LinearFp8Descriptor, LinearFp8Plan
from planq.ops.linear.linear_llm_int8 import (
    LinearLlmInt8Args,
    LinearLlmInt8Descriptor,
    LinearLlmInt8Plan,
)
from planq.ops.linear.linear_mixed import (
    LinearMixedArgs,
    LinearMixedDescriptor,
    LinearMixedPlan,
)
from planq.ops.linear.linear_w8a8 import LinearW8A8Args, LinearW8A8Descriptor, LinearW8A8Plan
from planq.ops.linear.linear_w8a8_dynamic import (
    LinearW8A8DynamicArgs,
    LinearW8A8DynamicDescriptor,
    LinearW8A8DynamicPlan,
)
from planq.ops.linear.matmul import MatmulArgs, MatmulDescriptor, MatmulPlan
from planq.ops.linear.matmul_int8 import MatmulInt8Args, MatmulInt8Descriptor, MatmulInt8Plan
from planq.ops.linear.vocabulary import Accumulation, WeightLayout

__all__ = [
    "Accumulation",
    "CodeSumArgs",
    "CodeSumDescriptor",
    "CodeSumPlan",
    "GroupedLinearArgs",
    "GroupedLinearDescriptor",
    "GroupedLinearPlan",
    "Linear4BitArgs",
    "Linear4BitDescriptor",
    "Linear4BitPlan",
    "LinearFp8Args",
    "LinearFp8Descriptor",
    "LinearFp8Plan",
    "LinearLlmInt8Args",
    "LinearLlmInt8Descriptor",
    "LinearLlmInt8Plan",
    "LinearMixedArgs",
    "LinearMixedDescriptor",
    "LinearMixedPlan",
    "LinearW8A8Args",
    "LinearW8A8Descriptor",
    "LinearW8A8DynamicArgs",
    "LinearW8A8DynamicDescriptor",
    "LinearW8A8DynamicPlan",
    "LinearW8A8Plan",
    "MatmulArgs",
    "MatmulDescriptor",
    "MatmulInt8Args",
    "MatmulInt8Descriptor",
    "MatmulInt8Plan",
    "MatmulPlan",
    "WeightLayout",
]
