"""The classes of `code_sum`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class CodeSumDescriptor(Descriptor):
    """Sum integer codes along one of the two last axes, exactly, into int32.

    When to use:
        Once per weight, or per activation, for the ``weight_sum`` and ``input_sum`` of
        :class:`LinearW8A8Descriptor` with zero points.

    Formula:
        ``output[...] = sum of input[..., k]`` along ``axis``. Descriptors whose sums might overflow
        int32 are refused.

    Dtypes:
        input int8, uint8, int4, uint4 (two codes a byte along the last axis, the first in the low
        nibble); output int32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the shape without ``axis``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT: integer sums do not depend on their order. Each is
        batch-invariant where sums are of rows.

    Attributes:
        shape: Logical shape of ``input``.
        input_dtype: Element type of ``input``.
        axis: What is summed: the last axis, or the one before, for weights stored ``(k, n)``.

    Raises:
        DescriptorError: Another dtype or axis, so many terms that a sum might overflow int32.

    Source:
        The row and column sums of FBGEMM and oneDNN, which correct for zero points.
    """

    operator: ClassVar[str] = "code_sum"

    shape: Shape
    input_dtype: DTypeField = "int8"
    axis: int = -1


@args_class
class CodeSumArgs:
    """Operands of :class:`CodeSumDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the sums go; likewise.
    """

    input: Tensor
    output: Tensor


class CodeSumPlan(Plan):
    """A plan for :class:`CodeSumDescriptor`."""

    __slots__ = ()


register(CodeSumDescriptor, CodeSumArgs, CodeSumPlan)
