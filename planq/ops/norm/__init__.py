"""The norm family: rows brought to one scale, by their root mean square or their deviation."""

from planq.ops.norm.layer_norm import LayerNormArgs, LayerNormDescriptor, LayerNormPlan
from planq.ops.norm.rms_norm import RmsNormArgs, RmsNormDescriptor, RmsNormPlan

__all__ = [
    "LayerNormArgs",
    "LayerNormDescriptor",
    "LayerNormPlan",
    "RmsNormArgs",
    "RmsNormDescriptor",
    "RmsNormPlan",
]
