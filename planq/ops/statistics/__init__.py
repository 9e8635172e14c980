"""The statistics family: what is known of a tensor's elements beyond their range."""

from planq.ops.statistics.estimate_quantiles import (
    EstimateQuantilesArgs,
    EstimateQuantilesDescriptor,
    EstimateQuantilesPlan,
)

__all__ = [
    "EstimateQuantilesArgs",
    "EstimateQuantilesDescriptor",
    "EstimateQuantilesPlan",
]
