"""The group family: DeepSpeed's quantization of flat groups, for communication."""

from planq.ops.group.dequantize_reduce import (
    DequantizeReduceArgs,
    DequantizeReduceDescriptor,
    DequantizeReducePlan,
)
from planq.ops.group.group_dequantize import (
    GroupDequantizeArgs,
    GroupDequantizeDescriptor,
    GroupDequantizePlan,
)
from planq.ops.group.group_quantize import (
    GroupQuantizeArgs,
    GroupQuantizeDescriptor,
    GroupQuantizePlan,
)
from planq.ops.group.swizzled_quantize import (
    SwizzledQuantizeArgs,
    SwizzledQuantizeDescriptor,
    SwizzledQuantizePlan,
)

__all__ = [
    "DequantizeReduceArgs",
    "DequantizeReduceDescriptor",
    "DequantizeReducePlan",
    "GroupDequantizeArgs",
    "GroupDequantizeDescriptor",
    "GroupDequantizePlan",
    "GroupQuantizeArgs",
    "GroupQuantizeDescriptor",
    "GroupQuantizePlan",
    "SwizzledQuantizeArgs",
    "SwizzledQuantizeDescriptor",
    "SwizzledQuantizePlan",
]
