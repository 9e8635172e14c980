"""The attention family: what queries find in the keys and values of their sequences."""

from planq.ops.attention.attention import AttentionArgs, AttentionDescriptor, AttentionPlan
from planq.ops.attention.merge_attention_states import (
    MergeAttentionStatesArgs,
    MergeAttentionStatesDescriptor,
    MergeAttentionStatesPlan,
)

__all__ = [
    "AttentionArgs",
    "AttentionDescriptor",
    "AttentionPlan",
    "MergeAttentionStatesArgs",
    "MergeAttentionStatesDescriptor",
    "MergeAttentionStatesPlan",
]
