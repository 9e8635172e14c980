"""The outlier family: matrices whose few large elements are kept apart."""

from planq.ops.outlier.coo_to_csc import CooToCscArgs, CooToCscDescriptor, CooToCscPlan
from planq.ops.outlier.coo_to_csr import CooToCsrArgs, CooToCsrDescriptor, CooToCsrPlan
from planq.ops.outlier.double_quantize import (
    DoubleQuantizeArgs,
    DoubleQuantizeDescriptor,
    DoubleQuantizePlan,
)
from planq.ops.outlier.extract_outliers import (
    ExtractOutliersArgs,
    ExtractOutliersDescriptor,
    ExtractOutliersPlan,
)
from planq.ops.outlier.llm_int8_quantize import (
    LlmInt8QuantizeArgs,
    LlmInt8QuantizeDescriptor,
    LlmInt8QuantizePlan,
)
from planq.ops.outlier.row_column_absmax import (
    RowColumnAbsmaxArgs,
    RowColumnAbsmaxDescriptor,
    RowColumnAbsmaxPlan,
)
from planq.ops.outlier.spmm_coo import SpmmCooArgs, SpmmCooDescriptor, SpmmCooPlan
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
from planq.ops.outlier.vocabulary import Layout, VectorwiseForm

__all__ = [
    "CooToCscArgs",
    "CooToCscDescriptor",
    "CooToCscPlan",
    "CooToCsrArgs",
    "CooToCsrDescriptor",
    "CooToCsrPlan",
    "DoubleQuantizeArgs",
    "DoubleQuantizeDescriptor",
    "DoubleQuantizePlan",
    "ExtractOutliersArgs",
    "ExtractOutliersDescriptor",
    "ExtractOutliersPlan",
    "Layout",
    "LlmInt8QuantizeArgs",
    "LlmInt8QuantizeDescriptor",
    "LlmInt8QuantizePlan",
    "RowColumnAbsmaxArgs",
    "RowColumnAbsmaxDescriptor",
    "RowColumnAbsmaxPlan",
    "SpmmCooArgs",
    "SpmmCooDescriptor",
    "SpmmCooPlan",
    "TransformLayoutArgs",
    "TransformLayoutDescriptor",
    "TransformLayoutPlan",
    "VectorwiseDequantizeArgs",
    "VectorwiseDequantizeDescriptor",
    "VectorwiseDequantizePlan",
    "VectorwiseForm",
    "VectorwiseQuantizeArgs",
    "VectorwiseQuantizeDescriptor",
    "VectorwiseQuantizePlan",
]
