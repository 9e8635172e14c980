"""The statistics family: quantiles, norms, sums of squares, histograms and clipping."""

from planq.ops.statistics.estimate_quantiles import (
    EstimateQuantilesArgs,
    EstimateQuantilesDescriptor,
    EstimateQuantilesPlan,
)
from planq.ops.statistics.histogram_scatter_add import (
    HistogramScatterAddArgs,
    HistogramScatterAddDescriptor,
    HistogramScatterAddPlan,
)
from planq.ops.statistics.norm import NormArgs, NormDescriptor, NormPlan
from planq.ops.statistics.percentile_clip import (
    PercentileClipArgs,
    PercentileClipDescriptor,
    PercentileClipPlan,
)
from planq.ops.statistics.square_sum import SquareSumArgs, SquareSumDescriptor, SquareSumPlan
from planq.ops.statistics.vocabulary import NormOrder

__all__ = [
    "EstimateQuantilesArgs",
    "EstimateQuantilesDescriptor",
    "EstimateQuantilesPlan",
    "HistogramScatterAddArgs",
    "HistogramScatterAddDescriptor",
    "HistogramScatterAddPlan",
    "NormArgs",
    "NormDescriptor",
    "NormOrder",
    "NormPlan",
    "PercentileClipArgs",
    "PercentileClipDescriptor",
    "PercentileClipPlan",
    "SquareSumArgs",
    "SquareSumDescriptor",
    "SquareSumPlan",
]
