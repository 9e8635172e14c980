"""The packing family: the same codes in another order of bytes and bits."""

from planq.ops.packing.pack_int4 import PackInt4Args, PackInt4Descriptor, PackInt4Plan
from planq.ops.packing.pack_weight_4bit import (
    PackWeight4BitArgs,
    PackWeight4BitDescriptor,
    PackWeight4BitPlan,
)
from planq.ops.packing.reorder_mixed_dtype_weight import (
    ReorderMixedDtypeWeightArgs,
    ReorderMixedDtypeWeightDescriptor,
    ReorderMixedDtypeWeightPlan,
)
from planq.ops.packing.unpack_int4 import UnpackInt4Args, UnpackInt4Descriptor, UnpackInt4Plan

__all__ = [
    "PackInt4Args",
    "PackInt4Descriptor",
    "PackInt4Plan",
    "PackWeight4BitArgs",
    "PackWeight4BitDescriptor",
    "PackWeight4BitPlan",
    "ReorderMixedDtypeWeightArgs",
    "ReorderMixedDtypeWeightDescriptor",
    "ReorderMixedDtypeWeightPlan",
    "UnpackInt4Args",
    "UnpackInt4Descriptor",
    "UnpackInt4Plan",
]
