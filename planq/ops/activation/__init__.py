"""The activation family: functions between the layers of a network, gated or not."""

from planq.ops.activation.activation import ActivationArgs, ActivationDescriptor, ActivationPlan
from planq.ops.activation.vocabulary import ActivationFunction, GateLayout

__all__ = [
    "ActivationArgs",
    "ActivationDescriptor",
    "ActivationFunction",
    "ActivationPlan",
    "GateLayout",
]
