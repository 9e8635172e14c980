"""The elementwise family: elementary functions and sums of elements."""

from planq.ops.elementwise.add import AddArgs, AddDescriptor, AddPlan
from planq.ops.elementwise.unary import UnaryArgs, UnaryDescriptor, UnaryPlan
from planq.ops.elementwise.vocabulary import UnaryFunction

__all__ = [
    "AddArgs",
    "AddDescriptor",
    "AddPlan",
    "UnaryArgs",
    "UnaryDescriptor",
    "UnaryFunction",
    "UnaryPlan",
]
