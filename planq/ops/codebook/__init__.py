"""The codebook family: codes are indices into a table of values, which an absmax scales."""

from planq.ops.codebook.blockwise_dequantize import (
    BlockwiseDequantizeArgs,
    BlockwiseDequantizeDescriptor,
    BlockwiseDequantizePlan,
)
from planq.ops.codebook.blockwise_quantize import (
    BlockwiseQuantizeArgs,
    BlockwiseQuantizeDescriptor,
    BlockwiseQuantizePlan,
)
from planq.ops.codebook.codebook_dequantize import (
    CodebookDequantizeArgs,
    CodebookDequantizeDescriptor,
    CodebookDequantizePlan,
)
from planq.ops.codebook.codebook_quantize import (
    CodebookQuantizeArgs,
    CodebookQuantizeDescriptor,
    CodebookQuantizePlan,
)
from planq.ops.codebook.vocabulary import Codebook

__all__ = [
    "BlockwiseDequantizeArgs",
    "BlockwiseDequantizeDescriptor",
    "BlockwiseDequantizePlan",
    "BlockwiseQuantizeArgs",
    "BlockwiseQuantizeDescriptor",
    "BlockwiseQuantizePlan",
    "Codebook",
    "CodebookDequantizeArgs",
    "CodebookDequantizeDescriptor",
    "CodebookDequantizePlan",
    "CodebookQuantizeArgs",
    "CodebookQuantizeDescriptor",
    "CodebookQuantizePlan",
]
