"""The classes of `pack_weight_4bit`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NibbleOrder
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class PackWeight4BitDescriptor(Descriptor):
    """Bring a 4-bit weight into the order in which tensor cores take it from registers, or back.

    When to use:
        Once per weight, before :class:`Linear4BitDescriptor` or :class:`LinearMixedDescriptor` with
        ``weight_layout`` PACKED.

    Formula:
        ``w[n, k]`` is the weight. Tiles of 64 x 64 follow one another along k, 2048 bytes each, and
        in a tile, with ``n`` and ``k`` counted in it, the code is nibble
        ``n mod 16 div 8 + 2 (k mod 16 div 8) + 4 (k mod 2)`` of the little-endian 32-bit word
        ``4 (32 (n div 16) + 4 (n mod 8) + k mod 8 div 2) + k div 16``: each thread of a warp finds
        its part of four A fragments of ``mma`` m16n8k16, or ``wgmma`` m64 k16, in 16 bytes of its
        own. int4 codes are stored with their sign bit flipped; beyond the weight, codes are 0.

        ``inverse`` exchanges input and output.

    Dtypes:
        Codes uint4 or int4, two a byte; the packed weight uint8.

    Shapes:
        ``weight_shape`` is ``(n, k)``; any extents, 0 included. ``input`` has ``(n, ceil(k / 2))``,
        ``output`` ``(ceil(n / 64), 2048 * ceil(k / 64))``; with ``inverse`` the other way round.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT; bits are moved and sign bits flipped. None is batch-invariant:
        the position of a code depends on the whole shape.

    Attributes:
        weight_shape: Logical shape of the weight.
        code_dtype: Type of the codes: UINT4 or INT4.
        inverse: From the packed weight to the plain matrix, whose spare nibbles are 0.
        nibble_order: Which nibble of a byte of the plain matrix has the first of two codes.

    Raises:
        DescriptorError: A shape that is not of rank 2, another dtype.

    Source:
        PTX's fragments of ``mma.m16n8k16`` and ``wgmma.m64nNk16``; Marlin's weights are alike.
    """

    operator: ClassVar[str] = "pack_weight_4bit"

    weight_shape: Shape
    code_dtype: DTypeField = "uint4"
    inverse: bool = False
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@args_class
class PackWeight4BitArgs:
    """Operands of :class:`PackWeight4BitDescriptor`.

    Attributes:
        input: The plain matrix, or with ``inverse`` the packed one; rows may be apart.
        output: The other one; likewise.
    """

    input: Tensor
    output: Tensor


class PackWeight4BitPlan(Plan):
    """A plan for :class:`PackWeight4BitDescriptor`."""

    __slots__ = ()


register(PackWeight4BitDescriptor, PackWeight4BitArgs, PackWeight4BitPlan)
