"""The memory family: what tensors begin with, and elements one by one."""

from planq.ops.memory.arange import ArangeArgs, ArangeDescriptor, ArangePlan
from planq.ops.memory.fill import FillArgs, FillDescriptor, FillPlan
from planq.ops.memory.multiply import MultiplyArgs, MultiplyDescriptor, MultiplyPlan

__all__ = [
    "ArangeArgs",
    "ArangeDescriptor",
    "ArangePlan",
    "FillArgs",
    "FillDescriptor",
    "FillPlan",
    "MultiplyArgs",
    "MultiplyDescriptor",
    "MultiplyPlan",
]
