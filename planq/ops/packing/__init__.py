"""The packing family: the same codes in another order of bytes and bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from planq.descriptor import Descriptor
from planq.dtypes import DTypeLike, NibbleOrder
from planq.plan import Plan
from planq.registry import register

__all__ = [
    "PackInt4Args",
    "PackInt4Descriptor",
    "PackInt4Plan",
    "ReorderMixedDtypeWeightArgs",
    "ReorderMixedDtypeWeightDescriptor",
    "ReorderMixedDtypeWeightPlan",
    "UnpackInt4Args",
    "UnpackInt4Descriptor",
    "UnpackInt4Plan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        Every row is BIT_EXACT and batch-invariant; no arithmetic is done.

    Attributes:
        shape: Shape of ``input``.
        output_dtype: int4 or uint4: what the codes are.
        axis: Along which axis codes share a byte.
        nibble_order: Which nibble the first of two codes takes.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape.

    Source:
        torch ``pack_int4_to_int8``; bitsandbytes packs high first.
    """

    operator: ClassVar[str] = "pack_int4"

    shape: tuple[int, ...]
    output_dtype: DTypeLike = "int4"
    axis: int = -1
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@dataclass(slots=True, kw_only=True)
class PackInt4Args:
    """Operands of :class:`PackInt4Descriptor`.

    Attributes:
        input: The codes, one a byte; any outer strides, innermost stride 1.
        output: Where the packed bytes go; likewise.
    """

    input: Any
    output: Any


class PackInt4Plan(Plan):
    """A plan for :class:`PackInt4Descriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
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
        Every row is BIT_EXACT and batch-invariant; no arithmetic is done.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: int4 or uint4: what the codes are.
        axis: Along which axis codes share a byte.
        nibble_order: Which nibble the first of two codes takes.

    Raises:
        DescriptorError: Another dtype, an axis outside of the shape.

    Source:
        torch ``unpack_int8_to_int4``, which is this with uint4.
    """

    operator: ClassVar[str] = "unpack_int4"

    shape: tuple[int, ...]
    input_dtype: DTypeLike = "int4"
    axis: int = -1
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@dataclass(slots=True, kw_only=True)
class UnpackInt4Args:
    """Operands of :class:`UnpackInt4Descriptor`.

    Attributes:
        input: The packed bytes; any outer strides, innermost stride 1.
        output: Where the codes go, one a byte; likewise.
    """

    input: Any
    output: Any


class UnpackInt4Plan(Plan):
    """A plan for :class:`UnpackInt4Descriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorderMixedDtypeWeightDescriptor(Descriptor):
    """Bring a weight into the order that CUTLASS's mixed-dtype linear layers read, or back.

    When to use:
        Once per weight, before a product of float16 or bfloat16 activations with an int8 or int4
        weight by CUTLASS's kernels for NVIDIA GPUs of compute capability 8.x.

    Formula:
        ``W[k, n]`` is the weight. The result is a sequence of 32-bit words, little-endian, whose
        fields of 8 or 4 bits are ``W[k, n] + 128 mod 256`` or ``W[k, n] + 8 mod 16``.

        int8: with ``i = k mod 16``, the field is ``i div 8 + 2 (i mod 2)`` of the word
        ``(K / 2) (n div 2) + 32 (k div 64) + 16 (n mod 2) + 4 (k mod 64 div 16) + i div 2 mod 4``.

        int4: with ``i = k mod 32``, the field is ``i div 8 + 4 (i mod 2)`` of the word
        ``(K / 2) (n div 4) + 32 (k div 64) + 8 (n mod 4) + 4 (k mod 64 div 32) + i div 2 mod 4``.

        ``inverse`` exchanges input and output.

    Dtypes:
        input int8, or int4 as uint8 with two elements a byte along the last axis, the first one in
        the low nibble; output uint8. With ``inverse`` the other way round.

    Shapes:
        ``W`` is (K, N) with multiples of 64, 0 included. The plain matrix is W, or its transpose
        (N, K) with ``transpose``; int4 halves its last axis. The reordered one is (K, N), for int4
        (K, N / 2), whatever the shape means in memory.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant; bits are moved and sign bits flipped.

    Attributes:
        shape: (K, N), also with ``transpose`` and for int4.
        input_dtype: int8 or int4: what the weight is.
        transpose: The plain matrix is (N, K): its rows are the columns of W.
        inverse: From the reordered weight to the plain matrix.

    Raises:
        DescriptorError: A shape that is not of rank 2 or not made of multiples of 64, another
            dtype.

    Source:
        torch ``quantized_weight_reorder_for_mixed_dtypes_linear_cutlass``.
    """

    operator: ClassVar[str] = "reorder_mixed_dtype_weight"

    shape: tuple[int, ...]
    input_dtype: DTypeLike = "int8"
    transpose: bool = False
    inverse: bool = False


@dataclass(slots=True, kw_only=True)
class ReorderMixedDtypeWeightArgs:
    """Operands of :class:`ReorderMixedDtypeWeightDescriptor`.

    Attributes:
        input: The plain matrix, or with ``inverse`` the reordered one; rows may be apart.
        output: The other one; likewise.
    """

    input: Any
    output: Any


class ReorderMixedDtypeWeightPlan(Plan):
    """A plan for :class:`ReorderMixedDtypeWeightDescriptor`."""

    __slots__ = ()


register(PackInt4Descriptor, PackInt4Args, PackInt4Plan)
register(UnpackInt4Descriptor, UnpackInt4Args, UnpackInt4Plan)
register(
    ReorderMixedDtypeWeightDescriptor, ReorderMixedDtypeWeightArgs, ReorderMixedDtypeWeightPlan
)
