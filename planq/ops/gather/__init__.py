"""The gather family: rows of a table by index, and the largest or a drawn index of a row."""

from planq.ops.gather.argmax import ArgmaxArgs, ArgmaxDescriptor, ArgmaxPlan
from planq.ops.gather.embedding import EmbeddingArgs, EmbeddingDescriptor, EmbeddingPlan
from planq.ops.gather.sample import SampleArgs, SampleDescriptor, SamplePlan

__all__ = [
    "ArgmaxArgs",
    "ArgmaxDescriptor",
    "ArgmaxPlan",
    "EmbeddingArgs",
    "EmbeddingDescriptor",
    "EmbeddingPlan",
    "SampleArgs",
    "SampleDescriptor",
    "SamplePlan",
]
