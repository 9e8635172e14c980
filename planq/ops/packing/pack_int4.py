"""The classes of `pack_int4`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NibbleOrder
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class PackInt4Descriptor(Descriptor):
    """Pack 4-bit codes that have a byte each two a byte, along any axis.

    When to use:
        Codes that were made, edited or loaded one a byte, on their way to a 4-bit kernel.

    Formula:
        Along ``axis``, byte ``j`` holds the low four bits of the codes ``2 j`` and ``2 j + 1``:
        LOW_FIRST ``output[j] = input[2 j] mod 16 + 16 (input[2 j + 1] mod 16)``, HIGH_FIRST the
        other way round. Codes outside of 4 bits are taken modulo 16. Where the axis is odd, the
        spare nibble is 0.

    Dtypes:
        input int8 for int4 and uint8 for uint4; output uint8.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape with ``axis`` halved,
        rounded up.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT; no arithmetic is done. Each is batch-invariant where ``axis`` is
        the last one; otherwise a byte has codes of two rows.

    Attributes:
        shape: Shape of ``input``.
        output_dtype: int4 or uint4: what the codes are.
        axis: The axis along which two codes share a byte.
        nibble_order: Which nibble the first of two codes takes.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape.

    Source:
        torch ``pack_int4_to_int8``; bitsandbytes packs high first.
    """

    operator: ClassVar[str] = "pack_int4"

    shape: Shape
    output_dtype: DTypeField = "int4"
    axis: int = -1
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@args_class
class PackInt4Args:
    """Operands of :class:`PackInt4Descriptor`.

    Attributes:
        input: The codes, one a byte; any outer strides, innermost stride 1.
        output: Where the packed bytes go; likewise.
    """

    input: Tensor
    output: Tensor


class PackInt4Plan(Plan):
    """A plan for :class:`PackInt4Descriptor`."""

    __slots__ = ()


register(PackInt4Descriptor, PackInt4Args, PackInt4Plan)
