"""Operators as torch operations: what eager torch and torch.compile are timed on, and a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from harness import codebook, dynamic, packing, product, static
from harness.segments import Operands

Formula = Callable[[Operands], tuple[torch.Tensor, ...]]

_FORMULAS: Final[dict[str, Callable[[Any], Formula]]] = {
    "dynamic_range_quantize": dynamic.DynamicRangeQuantize,
    "min_max": dynamic.MinMax,
    "quantize": static.Quantize,
    "dequantize": static.Dequantize,
    "fake_quantize": static.FakeQuantize,
    "quantize_backward": static.QuantizeBackward,
    "dequantize_backward": static.DequantizeBackward,
    "fake_quantize_backward": static.FakeQuantizeBackward,
    "pack_int4": packing.PackInt4,
    "unpack_int4": packing.UnpackInt4,
    "reorder_mixed_dtype_weight": packing.Reorder,
    "blockwise_quantize": codebook.Quantize,
    "blockwise_dequantize": codebook.Dequantize,
    "codebook_quantize": codebook.Quantize,
    "codebook_dequantize": codebook.Dequantize,
    "estimate_quantiles": codebook.EstimateQuantiles,
    "matmul_int8": product.Matmul,
    "linear_w8a8": product.Linear,
    "code_sum": product.CodeSum,
}


def formula(desc: Any) -> Formula:
    """The descriptor's outputs, in order, of its inputs by name.

    Raises:
        ValueError: The descriptor asks for something that is not written down in torch.
    """
    if desc.operator not in _FORMULAS:
        raise ValueError(f"no torch formula for {desc.operator}")
    return _FORMULAS[desc.operator](desc)
