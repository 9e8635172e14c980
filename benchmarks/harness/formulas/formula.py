"""Operators as torch operations: what eager torch and torch.compile are timed on, and a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

import planq
from harness.formulas import (
    codebook,
    coo,
    dynamic,
    elementwise,
    gather,
    gguf,
    group,
    linear,
    memory,
    optimizer,
    outlier,
    packing,
    routing,
    static,
    statistics,
)
from harness.formulas.segments import Operands

Formula = Callable[[Operands], tuple[torch.Tensor, ...]]


def _fake_quantize(desc: Any) -> Formula:
    """By either convention."""
    deepspeed = desc.convention is planq.Convention.DEEPSPEED
    return group.Fake(desc) if deepspeed else static.FakeQuantize(desc)


_FORMULAS: Final[dict[str, Callable[[Any], Formula]]] = {
    "dynamic_range_quantize": dynamic.DynamicRangeQuantize,
    "min_max": dynamic.MinMax,
    "quantize": static.Quantize,
    "dequantize": static.Dequantize,
    "fake_quantize": _fake_quantize,
    "quantize_backward": static.QuantizeBackward,
    "dequantize_backward": static.DequantizeBackward,
    "fake_quantize_backward": static.FakeQuantizeBackward,
    "group_quantize": group.Quantize,
    "swizzled_quantize": group.Quantize,
    "group_dequantize": group.Dequantize,
    "dequantize_reduce": group.Reduce,
    "embedding": gather.Embedding,
    "argmax": gather.Argmax,
    "sample": gather.Sample,
    "gguf_dequantize": gguf.Dequantize,
    "gguf_quantize": gguf.Quantize,
    "fill": memory.Fill,
    "multiply": memory.Multiply,
    "pipeline_copy": memory.PipelineCopy,
    "add": elementwise.Add,
    "activation": elementwise.Activation,
    "optimizer_step": optimizer.Step,
    "pack_int4": packing.PackInt4,
    "unpack_int4": packing.UnpackInt4,
    "reorder_mixed_dtype_weight": packing.Reorder,
    "pack_weight_4bit": packing.PackWeight,
    "moe_permute": routing.MoePermute,
    "blockwise_quantize": codebook.Quantize,
    "blockwise_dequantize": codebook.Dequantize,
    "codebook_quantize": codebook.Quantize,
    "codebook_dequantize": codebook.Dequantize,
    "estimate_quantiles": codebook.EstimateQuantiles,
    "square_sum": statistics.Norm,
    "norm": statistics.Norm,
    "matmul_int8": linear.MatmulInt8,
    "linear_w8a8": linear.LinearW8A8,
    "linear_w8a8_dynamic": linear.LinearW8A8Dynamic,
    "linear_llm_int8": linear.LinearLlmInt8,
    "linear_gguf": gguf.Linear,
    "llm_int8_quantize": linear.LlmInt8Quantize,
    "code_sum": linear.CodeSum,
    "row_column_absmax": coo.RowColumnAbsmax,
    "double_quantize": coo.DoubleQuantize,
    "transform_layout": outlier.TransformLayout,
    "extract_outliers": outlier.ExtractOutliers,
    "vectorwise_quantize": outlier.VectorwiseQuantize,
    "vectorwise_dequantize": outlier.VectorwiseDequantize,
}


def formula(desc: Any) -> Formula:
    """The descriptor's outputs, in order, of its inputs by name.

    Raises:
        ValueError: The descriptor asks for something that is not written down in torch.
    """
    if desc.operator not in _FORMULAS:
        raise ValueError(f"no torch formula for {desc.operator}")
    return _FORMULAS[desc.operator](desc)
