"""The classes of `unpack_int4`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NibbleOrder
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class UnpackInt4Descriptor(Descriptor):
    """Give 4-bit codes that share bytes along any axis a byte each.

    When to use:
        To look at packed codes, to edit them, or to hand them to code that wants 8 bits.

    Formula:
        Along ``axis``, the codes ``2 j`` and ``2 j + 1`` are the nibbles of byte ``j``: LOW_FIRST
        ``output[2 j] = input[j] mod 16``, ``output[2 j + 1] = input[j] div 16``, HIGH_FIRST the
        other way round. int4 codes are two's complement: 8 to 15 stand for -8 to -1. Where the
        axis is odd, the spare nibble is not looked at.

    Dtypes:
        input uint8; output int8 for int4 and uint8 for uint4.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` has the output's shape with ``axis`` halved,
        rounded up.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant; no arithmetic is done.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: int4 or uint4: what the codes are.
        axis: The axis along which two codes share a byte.
        nibble_order: Which nibble the first of two codes takes.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape.

    Source:
        torch ``unpack_int8_to_int4``, which is this with uint4.
    """

    operator: ClassVar[str] = "unpack_int4"

    shape: Shape
    input_dtype: DTypeField = "int4"
    axis: int = -1
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@args_class
class UnpackInt4Args:
    """Operands of :class:`UnpackInt4Descriptor`.

    Attributes:
        input: The packed bytes; any outer strides, innermost stride 1.
        output: Where the codes go, one a byte; likewise.
    """

    input: Tensor
    output: Tensor


class UnpackInt4Plan(Plan):
    """A plan for :class:`UnpackInt4Descriptor`."""

    __slots__ = ()


register(UnpackInt4Descriptor, UnpackInt4Args, UnpackInt4Plan)
