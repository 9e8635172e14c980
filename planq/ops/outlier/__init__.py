"""The outlier family: codes of matrices in which a few columns are too large for them."""

from planq.ops.outlier.extract_outliers import (
    ExtractOutliersArgs,
    ExtractOutliersDescriptor,
    ExtractOutliersPlan,
)
from planq.ops.outlier.transform_layout import (
    TransformLayoutArgs,
    TransformLayoutDescriptor,
    TransformLayoutPlan,
)
from planq.ops.outlier.vectorwise_dequantize import (
    VectorwiseDequantizeArgs,
    VectorwiseDequantizeDescriptor,
    VectorwiseDequantizePlan,
)
from planq.ops.outlier.vectorwise_quantize import (
    VectorwiseQuantizeArgs,
    VectorwiseQuantizeDescriptor,
    VectorwiseQuantizePlan,
)

__all__ = [
    "ExtractOutliersArgs",
    "ExtractOutliersDescriptor",
    "ExtractOutliersPlan",
    "TransformLayoutArgs",
    "TransformLayoutDescriptor",
    "TransformLayoutPlan",
    "VectorwiseDequantizeArgs",
    "VectorwiseDequantizeDescriptor",
    "VectorwiseDequantizePlan",
    "VectorwiseQuantizeArgs",
    "VectorwiseQuantizeDescriptor",
    "VectorwiseQuantizePlan",
]
