"""The enumerations of descriptors of the codebook family."""

from planq.dtypes import Vocabulary


class Codebook(Vocabulary):
    """Which values codes stand for.

    ``GIVEN``: the ``codebook`` operand. ``DYNAMIC``: bitsandbytes' signed 8-bit dynamic map.
    ``NF4``, ``FP4``, ``INT4``, ``AF4``: its 4-bit tables, in the order in which it stores them. All
    but ``GIVEN`` are compiled in.
    """

    GIVEN = "given"
    DYNAMIC = "dynamic"
    NF4 = "nf4"
    FP4 = "fp4"
    INT4 = "int4"
    AF4 = "af4"
