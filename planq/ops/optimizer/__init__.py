"""The optimizer family: steps of training, in place."""

from planq.ops.optimizer.optimizer_step import (
    OptimizerStepArgs,
    OptimizerStepDescriptor,
    OptimizerStepPlan,
)

__all__ = [
    "OptimizerStepArgs",
    "OptimizerStepDescriptor",
    "OptimizerStepPlan",
]
