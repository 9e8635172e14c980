"""The classes of `argmax`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import DType
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class ArgmaxDescriptor(Descriptor):
    """Find the largest element of each row.

    When to use:
        Greedy decoding: the next token of each sequence, out of the logits, without a sort and
        without a number that is read back.

    Formula:
        ``output[r]`` is the lowest index ``i`` of a largest element ``input[r, i]``. Every NaN is
        larger than all numbers, and as large as every other NaN, so the first one wins. +0 and -0
        are equal.

    Dtypes:
        input float16, bfloat16, float32; output int64 or int32.

    Shapes:
        ``shape`` is ``(..., n)`` of rank 1 to 8, ``n`` from 1 to 2^31 - 1: an empty row has no
        largest element. Other extents may be 0. ``output`` has the shape without its last axis.

    Workspace:
        None. On compute capability 9.0 and later up to 8 multiprocessors share a row, in a cluster.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant; no arithmetic is done.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Its element type.
        output_dtype: Element type of the indices.

    Raises:
        DescriptorError: A type that is not listed, rows of no elements, or rows of more than
            2^31 - 1.

    Source:
        torch ``argmax``, which counts a NaN as the largest, too.
    """

    operator: ClassVar[str] = "argmax"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField = DType.INT64


@args_class
class ArgmaxArgs:
    """Operands of :class:`ArgmaxDescriptor`.

    Attributes:
        input: The rows; any outer strides, innermost stride 1.
        output: Where the indices go; likewise.
    """

    input: Tensor
    output: Tensor


class ArgmaxPlan(Plan):
    """A plan for :class:`ArgmaxDescriptor`."""

    __slots__ = ()


register(ArgmaxDescriptor, ArgmaxArgs, ArgmaxPlan)
