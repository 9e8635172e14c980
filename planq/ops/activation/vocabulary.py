"""The enumerations of descriptors of the activation family."""

from planq.dtypes import Vocabulary


class ActivationFunction(Vocabulary):
    """A function between the layers of a network.

    ``SILU``: x / (1 + e^-x). ``GELU_TANH``, ``GELU_ERF``: x times the normal distribution, by its
    approximation with tanh and by erf. ``SIGMOID``: 1 / (1 + e^-x). ``RELU``: max(x, 0).
    ``RELU_SQUARED``: its square.
    """

    SILU = "silu"
    GELU_TANH = "gelu_tanh"
    GELU_ERF = "gelu_erf"
    SIGMOID = "sigmoid"
    RELU = "relu"
    RELU_SQUARED = "relu_squared"


class GateLayout(Vocabulary):
    """Where a gated activation finds its gate and its up side.

    ``HALVES``: rows begin with the gate and end with the up side. ``HALVES_UP_FIRST``: the other
    way round. ``INTERLEAVED``: each element of the gate has its up element behind it. ``SEPARATE``:
    they are two tensors.
    """

    HALVES = "halves"
    HALVES_UP_FIRST = "halves_up_first"
    INTERLEAVED = "interleaved"
    SEPARATE = "separate"
