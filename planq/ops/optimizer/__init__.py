"""The optimizer family: steps of training, in place."""

from planq.ops.optimizer.optimizer_step import (
    OptimizerStepArgs,
    OptimizerStepDescriptor,
    OptimizerStepPlan,
)
from planq.ops.optimizer.vocabulary import (
    NonFiniteGradient,
    OptimizerAlgorithm,
    StateFormat,
    TrustRatio,
    WeightDecayMode,
)

__all__ = [
    "NonFiniteGradient",
    "OptimizerAlgorithm",
    "OptimizerStepArgs",
    "OptimizerStepDescriptor",
    "OptimizerStepPlan",
    "StateFormat",
    "TrustRatio",
    "WeightDecayMode",
]
