"""The enumerations of descriptors of the outlier family."""

from planq.dtypes import Vocabulary


class Layout(Vocabulary):
    """The memory layout of a matrix of 8- or 32-bit integers.

    ``ROW``: row by row. ``COL``: column by column. ``COL32``: panels of 32 columns, row by row.
    ``COL_TURING``, ``COL_AMPERE``: such panels, in tiles of 8 or 32 rows that are permuted: the
    layouts that cuBLASLt calls COL4_4R2_8C and COL32_2R_4R4. See docs/numerics/outlier.md.
    """

    ROW = "row"
    COL = "col"
    COL32 = "col32"
    COL_TURING = "col_turing"
    COL_AMPERE = "col_ampere"


class VectorwiseForm(Vocabulary):
    """How bitsandbytes' vectorwise quantization makes codes of a tensor, or of vectors of it.

    ``LINEAR``: the tensor by its largest magnitude. ``ROW``, ``VECTOR``: vectors by theirs.
    ``TRUNCATED``: vectors by 0.7 times theirs, to which elements are clipped. ``ZEROPOINT``: the
    tensor by its range, ``ROW_ZEROPOINT``, ``VECTOR_ZEROPOINT``: vectors by theirs. ``ROW`` and
    ``VECTOR`` make the same codes; they differ in what a product's result is multiplied by.
    """

    LINEAR = "linear"
    ROW = "row"
    VECTOR = "vector"
    ZEROPOINT = "zeropoint"
    ROW_ZEROPOINT = "row_zeropoint"
    VECTOR_ZEROPOINT = "vector_zeropoint"
    TRUNCATED = "truncated"
