"""The enumerations of descriptors of the linear family."""

from planq.dtypes import Vocabulary


class Accumulation(Vocabulary):
    """In which order, and with which roundings, floating products are summed.

    ``SEQUENTIAL``: one fused multiply-add after another. ``LANES``: 32 such sums side by side,
    which are then added in pairs. ``TENSOR_SM90``: in the order and with the roundings of a tensor
    core of sm_90; docs/numerics/linear.md and docs/tensor-cores.md say which. ``GROUPS_SM90``:
    likewise, but only over the terms that share a scale, which then multiplies their sum.
    """

    SEQUENTIAL = "sequential"
    LANES = "lanes"
    TENSOR_SM90 = "tensor_sm90"
    GROUPS_SM90 = "groups_sm90"


class WeightLayout(Vocabulary):
    """The memory layout of the codes of a linear layer's weight (n, k).

    ``ROW_MAJOR``: row by row. ``REORDERED``: as ``reorder_mixed_dtype_weight`` writes its
    transpose. ``PACKED``: as ``pack_weight_4bit`` writes it.
    """

    ROW_MAJOR = "row_major"
    REORDERED = "reordered"
    PACKED = "packed"
