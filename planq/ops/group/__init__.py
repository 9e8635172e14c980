"""The group family: DeepSpeed's quantization of flat groups, for communication."""

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

__all__ = [
    "GroupDequantizeArgs",
    "GroupDequantizeDescriptor",
    "GroupDequantizePlan",
    "GroupQuantizeArgs",
    "GroupQuantizeDescriptor",
    "GroupQuantizePlan",
]
