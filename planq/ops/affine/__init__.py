"""The affine family: codes that dequantize as ``x ~ scale * (code - zero_point)``."""

from planq.ops.affine.dequantize import DequantizeArgs, DequantizeDescriptor, DequantizePlan
from planq.ops.affine.dequantize_backward import (
    DequantizeBackwardArgs,
    DequantizeBackwardDescriptor,
    DequantizeBackwardPlan,
)
from planq.ops.affine.dynamic_range_quantize import (
    DynamicRangeQuantizeArgs,
    DynamicRangeQuantizeDescriptor,
    DynamicRangeQuantizePlan,
)
from planq.ops.affine.fake_quantize import (
    FakeQuantizeArgs,
    FakeQuantizeDescriptor,
    FakeQuantizePlan,
)
from planq.ops.affine.fake_quantize_backward import (
    FakeQuantizeBackwardArgs,
    FakeQuantizeBackwardDescriptor,
    FakeQuantizeBackwardPlan,
)
from planq.ops.affine.min_max import MinMaxArgs, MinMaxDescriptor, MinMaxPlan
from planq.ops.affine.quantize import QuantizeArgs, QuantizeDescriptor, QuantizePlan
from planq.ops.affine.quantize_backward import (
    QuantizeBackwardArgs,
    QuantizeBackwardDescriptor,
    QuantizeBackwardPlan,
)

__all__ = [
    "DequantizeArgs",
    "DequantizeBackwardArgs",
    "DequantizeBackwardDescriptor",
    "DequantizeBackwardPlan",
    "DequantizeDescriptor",
    "DequantizePlan",
    "DynamicRangeQuantizeArgs",
    "DynamicRangeQuantizeDescriptor",
    "DynamicRangeQuantizePlan",
    "FakeQuantizeArgs",
    "FakeQuantizeBackwardArgs",
    "FakeQuantizeBackwardDescriptor",
    "FakeQuantizeBackwardPlan",
    "FakeQuantizeDescriptor",
    "FakeQuantizePlan",
    "MinMaxArgs",
    "MinMaxDescriptor",
    "MinMaxPlan",
    "QuantizeArgs",
    "QuantizeBackwardArgs",
    "QuantizeBackwardDescriptor",
    "QuantizeBackwardPlan",
    "QuantizeDescriptor",
    "QuantizePlan",
]
