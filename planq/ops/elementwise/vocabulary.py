"""The enumerations of descriptors of the elementwise family."""

from planq.dtypes import Vocabulary


class UnaryFunction(Vocabulary):
    """An elementary function of one number.

    ``EXP``: e to that power. ``EXP2``: 2 to that power. ``LOG``, ``LOG2``: the natural logarithm,
    and that to base 2. ``RSQRT``: 1 divided by the square root. ``SIGMOID``: 1 / (1 + e^-x).
    ``TANH``, ``ERF``: the hyperbolic tangent, and the error function. docs/numerics/functions.md
    has every bit of them.
    """

    EXP = "exp"
    EXP2 = "exp2"
    LOG = "log"
    LOG2 = "log2"
    RSQRT = "rsqrt"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    ERF = "erf"
