"""The enumerations of descriptors of the position family."""

from planq.dtypes import Vocabulary


class RotaryPairs(Vocabulary):
    """Which columns of a head a rotation takes together.

    ``NEOX``: column i and column i + rotary_dim / 2. ``INTERLEAVED``: columns 2i and 2i + 1.
    """

    NEOX = "neox"
    INTERLEAVED = "interleaved"
