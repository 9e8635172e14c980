"""The memory family: fills, ranges of numbers, copies and element-wise products."""

from planq.ops.memory.arange import ArangeArgs, ArangeDescriptor, ArangePlan
from planq.ops.memory.fill import FillArgs, FillDescriptor, FillPlan
from planq.ops.memory.multiply import MultiplyArgs, MultiplyDescriptor, MultiplyPlan
from planq.ops.memory.pipeline_copy import (
    PipelineCopyArgs,
    PipelineCopyDescriptor,
    PipelineCopyPlan,
)

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
    "PipelineCopyArgs",
    "PipelineCopyDescriptor",
    "PipelineCopyPlan",
]
