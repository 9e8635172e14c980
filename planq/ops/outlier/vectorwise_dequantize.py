"""The classes of `vectorwise_dequantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.outlier.vocabulary import VectorwiseForm
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class VectorwiseDequantizeDescriptor(Descriptor):
    """Turn codes of `vectorwise_quantize` back into elements.

    When to use:
        For codes and statistics of :class:`VectorwiseQuantizeDescriptor`, or of bitsandbytes'
        ``vectorwise_quant``.

    Formula:
        ``y = round((q / 127) scale)`` for LINEAR, ROW, VECTOR and TRUNCATED;
        ``y = round((q - zero_point) / scale)`` for ZEROPOINT, ROW_ZEROPOINT and VECTOR_ZEROPOINT.
        The difference is exact before it is rounded to the computing type; quotient and product are
        rounded once each. Any scale is taken: 0, negative numbers, infinities and NaN too.

    Dtypes:
        input int8, with a zero point uint8; output float16, bfloat16, float32, float64; scale
        float32, for float64 output float64; zero_point int32. Computed in the scale's type.

    Shapes:
        As :class:`VectorwiseQuantizeDescriptor`.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of the codes. Default: the one that ``form`` requires.
        output_dtype: Element type of ``output``.
        form: What segments and codes are.
        axis: The axis that vectors run along.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape, an axis other than the last
            one for LINEAR or ZEROPOINT.

    Source:
        bitsandbytes 0.43 ``vectorwise_dequant``, which knows the form ``vector`` alone and returns
        None for others.
    """

    operator: ClassVar[str] = "vectorwise_dequantize"

    shape: Shape
    input_dtype: DTypeField = None
    output_dtype: DTypeField
    form: VectorwiseForm = VectorwiseForm.VECTOR
    axis: int = -1


@args_class
class VectorwiseDequantizeArgs:
    """Operands of :class:`VectorwiseDequantizeDescriptor`.

    Attributes:
        input: Codes.
        output: Elements.
        scale: The statistic of each segment.
        zero_point: The code of 0; for forms with a zero point alone.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor | None = None


class VectorwiseDequantizePlan(Plan):
    """A plan for :class:`VectorwiseDequantizeDescriptor`."""

    __slots__ = ()


register(VectorwiseDequantizeDescriptor, VectorwiseDequantizeArgs, VectorwiseDequantizePlan)
