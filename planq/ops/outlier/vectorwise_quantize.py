"""The classes of `vectorwise_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.outlier.vocabulary import VectorwiseForm
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class VectorwiseQuantizeDescriptor(Descriptor):
    """Quantize a tensor, or its vectors along an axis, by the forms of bitsandbytes.

    When to use:
        Where codes and statistics of bitsandbytes' vectorwise forms are wanted, as for the operands
        of int8 products whose results are scaled by them. Other dynamic codes come from
        :class:`DynamicRangeQuantizeDescriptor`.

    Formula:
        ``M`` is the largest magnitude of a segment, ``lo`` and ``hi`` the ends of its range. Each
        operation is rounded once.

        - LINEAR: the tensor; ``scale = M``, ``v = (x / scale) 127``
        - ROW, VECTOR: vectors; ``scale = M``, ``v = x (127 / scale)``; where ``127 / scale``
          overflows, as LINEAR
        - TRUNCATED: vectors; ``scale = M 0.7``, ``v = (min(max(x, -scale), scale) / scale) 127``
        - ZEROPOINT (the tensor), ROW_ZEROPOINT, VECTOR_ZEROPOINT (vectors):
          ``scale = 255 / (hi - lo)``, at most ``2^22 / max(|lo|, |hi|)`` (float64: ``2^30``) and
          the largest finite number, 255 where all elements are 0;
          ``zero_point = -rne(lo scale)``, ``v = x scale + zero_point``

        Codes are ``rne(v)`` in [-127, 127], or in [0, 255] with a zero point: a code ``q`` stands
        for ``(q / 127) scale``, or for ``(q - zero_point) / scale``. Where ``hi - lo`` overflows,
        ``127.5 / (hi / 2 - lo / 2)`` is the quotient. A segment of zeros has the codes 0. One with
        a NaN or an infinity has the scale NaN, zero point 0 and codes 0.

    Dtypes:
        input float16, bfloat16, float32, float64; output int8, with a zero point uint8; scale
        float32, for float64 input float64; zero_point int32. Computed in the scale's type.

    Shapes:
        input and output any shape of 1 to 8 axes. scale and zero_point ``(1,)`` for LINEAR and
        ZEROPOINT, else ``shape`` with 1 in the place of ``axis`` (0 if it has no elements).

    Workspace:
        On the host one number per segment with a zero point, else none. On CUDA also partial
        ranges, where blocks share a segment.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a vector, nor the
        tensor's scale.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: Element type of the codes. Default: the one that ``form`` requires.
        form: What segments and codes are.
        axis: The axis that vectors run along, as bitsandbytes' ``dim``; -1 for LINEAR and
            ZEROPOINT.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape, an axis other than the last
            one for LINEAR or ZEROPOINT.

    Source:
        bitsandbytes 0.43 ``vectorwise_quant``, whose ``truncated-vector`` writes to its input,
        whose zero points stay in the codes, and which divides by the 0 of a vector of zeros.
    """

    operator: ClassVar[str] = "vectorwise_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField = None
    form: VectorwiseForm = VectorwiseForm.VECTOR
    axis: int = -1


@args_class
class VectorwiseQuantizeArgs:
    """Operands of :class:`VectorwiseQuantizeDescriptor`.

    Attributes:
        input: The tensor; it is only read.
        output: Codes.
        scale: The statistic of each segment, as bitsandbytes returns it.
        zero_point: The code of 0; for forms with a zero point alone.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor | None = None


class VectorwiseQuantizePlan(Plan):
    """A plan for :class:`VectorwiseQuantizeDescriptor`."""

    __slots__ = ()


register(VectorwiseQuantizeDescriptor, VectorwiseQuantizeArgs, VectorwiseQuantizePlan)
