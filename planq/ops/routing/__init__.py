"""The routing family: rows of tokens on their way to the experts of a layer, and back."""

from planq.ops.routing.moe_permute import MoePermuteArgs, MoePermuteDescriptor, MoePermutePlan
from planq.ops.routing.moe_unpermute import (
    MoeUnpermuteArgs,
    MoeUnpermuteDescriptor,
    MoeUnpermutePlan,
)

__all__ = [
    "MoePermuteArgs",
    "MoePermuteDescriptor",
    "MoePermutePlan",
    "MoeUnpermuteArgs",
    "MoeUnpermuteDescriptor",
    "MoeUnpermutePlan",
]
