"""The enumerations of descriptors of the gguf family."""

from planq.dtypes import Vocabulary


class GgufType(Vocabulary):
    """A type of blocks in GGUF files.

    A block is some neighbours of a row: 32 of ``Q4_0`` to ``Q8_1``, ``IQ4_NL`` and ``MXFP4``; 64 of
    ``NVFP4`` and ``Q2_0``; 128 of ``Q1_0``; 256 of the others. The last seven have grids, and no
    quantizer without an importance matrix. docs/numerics/gguf.md says what the bytes of each are.
    """

    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q8_1 = "q8_1"
    Q8_K = "q8_k"
    Q2_K = "q2_k"
    Q3_K = "q3_k"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"
    IQ4_NL = "iq4_nl"
    IQ4_XS = "iq4_xs"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    TQ1_0 = "tq1_0"
    TQ2_0 = "tq2_0"
    Q1_0 = "q1_0"
    Q2_0 = "q2_0"
    IQ2_XXS = "iq2_xxs"
    IQ2_XS = "iq2_xs"
    IQ2_S = "iq2_s"
    IQ3_XXS = "iq3_xxs"
    IQ3_S = "iq3_s"
    IQ1_S = "iq1_s"
    IQ1_M = "iq1_m"
