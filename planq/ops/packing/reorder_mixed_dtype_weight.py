"""The classes of `reorder_mixed_dtype_weight`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
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
        Every kernel is BIT_EXACT; bits are moved and sign bits flipped. None is batch-invariant:
        the position of a code depends on the whole shape.

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

    shape: Shape
    input_dtype: DTypeField = "int8"
    transpose: bool = False
    inverse: bool = False


@args_class
class ReorderMixedDtypeWeightArgs:
    """Operands of :class:`ReorderMixedDtypeWeightDescriptor`.

    Attributes:
        input: The plain matrix, or with ``inverse`` the reordered one; rows may be apart.
        output: The other one; likewise.
    """

    input: Tensor
    output: Tensor


class ReorderMixedDtypeWeightPlan(Plan):
    """A plan for :class:`ReorderMixedDtypeWeightDescriptor`."""

    __slots__ = ()


register(
    ReorderMixedDtypeWeightDescriptor, ReorderMixedDtypeWeightArgs, ReorderMixedDtypeWeightPlan
)
