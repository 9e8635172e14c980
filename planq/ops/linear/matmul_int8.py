"""The classes of `matmul_int8`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MatmulInt8Descriptor(Descriptor):
    """Multiply matrices of integer codes, exactly, into int32.

    When to use:
        For the sums themselves: the accumulators of a quantized layer whose scales are applied
        later, and ``igemm`` and its like. With scales in the same pass:
        :class:`LinearW8A8Descriptor`.

    Formula:
        ``acc[m, n] = sum over k of input[m, k] * weight[n, k]`` in int32. Descriptors whose sums
        might overflow int32 are refused. int32: ``output = acc``; int8:
        ``output = min(max(acc, -128), 127)``.

    Dtypes:
        input and weight int8, uint8, int4, uint4, one and the same or two (4-bit codes lie two a
        byte along the last axis, the first in the low nibble); output int32, int8.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, ``weight_shape`` ``(..., n, k)``, and ``output`` has
        ``(..., m, n)``; rank 2 to 8, any extents, 0 included. A leading axis that is 1 or missing
        on one side is repeated. 4-bit: the last axis as stored is halved, rounded up.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: integer sums do not depend on their order.

    Attributes:
        input_shape: Logical shape of ``input`` as it is stored.
        weight_shape: Logical shape of ``weight`` as it is stored.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``: int32 or int8.
        transpose_input: ``input_shape`` is ``(..., k, m)``.
        transpose_weight: ``weight_shape`` is ``(..., k, n)``.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype, so many terms that a sum
            might overflow int32.

    Source:
        bitsandbytes ``igemm``, ``batched_igemm``, ``int8_linear_matmul``; torch ``_int_mm``.
    """

    operator: ClassVar[str] = "matmul_int8"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField = "int8"
    weight_dtype: DTypeField = "int8"
    output_dtype: DTypeField = "int32"
    transpose_input: bool = False
    transpose_weight: bool = False


@args_class
class MatmulInt8Args:
    """Operands of :class:`MatmulInt8Descriptor`.

    Attributes:
        input: The codes of the first factor; any outer strides, innermost stride 1.
        weight: The codes of the second factor; likewise.
        output: Where the sums go; likewise.
    """

    input: Tensor
    weight: Tensor
    output: Tensor


class MatmulInt8Plan(Plan):
    """A plan for :class:`MatmulInt8Descriptor`."""

    __slots__ = ()


register(MatmulInt8Descriptor, MatmulInt8Args, MatmulInt8Plan)
