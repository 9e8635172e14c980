"""The enumerations of descriptors of the statistics family."""

from planq.dtypes import Vocabulary


class NormOrder(Vocabulary):
    """The p of a vector norm.

    ``ONE``: the sum of magnitudes. ``TWO``: the root of the sum of squares. ``INFINITY``: the
    largest magnitude.
    """

    ONE = "one"
    TWO = "two"
    INFINITY = "infinity"
