"""The gather family: rows of a table by index, and the index of a row's largest or drawn element."""

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
