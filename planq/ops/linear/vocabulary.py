"""The enumerations of descriptors of the linear family."""

from planq.dtypes import Vocabulary


class Accumulation(Vocabulary):
    """In which order, and with which roundings, floating products are summed.

    ``SEQUENTIAL``: one fused multiply-add after another. ``LANES``: 32 of these side by side, then
    pairs. ``TENSOR_SM90``: as a tensor core of sm_90 adds. ``GROUPS_SM90``: likewise within the
    terms that share a scale, whose sum then meets it.
    """

    SEQUENTIAL = "sequential"
    LANES = "lanes"
    TENSOR_SM90 = "tensor_sm90"
    GROUPS_SM90 = "groups_sm90"


class WeightLayout(Vocabulary):
    """How the codes of a linear layer's weight (n, k) lie in memory.

    ``ROW_MAJOR``: row by row. ``REORDERED``: as ``reorder_mixed_dtype_weight`` writes its
    transpose. ``PACKED``: as ``pack_weight_4bit`` writes it.
    """

    ROW_MAJOR = "row_major"
    REORDERED = "reordered"
    PACKED = "packed"
