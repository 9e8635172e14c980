"""The position family: queries and keys turned by the positions of their tokens."""

from planq.ops.position.rotary_embedding import (
    RotaryEmbeddingArgs,
    RotaryEmbeddingDescriptor,
    RotaryEmbeddingPlan,
)
from planq.ops.position.vocabulary import RotaryPairs

__all__ = [
    "RotaryEmbeddingArgs",
    "RotaryEmbeddingDescriptor",
    "RotaryEmbeddingPlan",
    "RotaryPairs",
]
