"""The classes of `transform_layout`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.outlier.vocabulary import Layout
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class TransformLayoutDescriptor(Descriptor):
    """Bring a matrix of integers from one memory layout to another, transposed or not.

    When to use:
        For int8 weights and int32 accumulators that are stored in the layouts of cuBLASLt's int8
        products, as bitsandbytes before 0.45 stored them; and to transpose such matrices. Every
        layout goes to every other one, back to rows too.

    Formula:
        Element (r, c) of ``R`` x ``C`` lies at

        - ROW: ``r C + c``; COL: ``c R + r``
        - COL32: ``(c div 32) 32 R + 32 r + c mod 32``
        - COL_TURING: ``(c div 32) 32 ceil8(R) + (r div 8) 256 + (r mod 2) 128 +
          (c mod 32 div 4) 16 + (r mod 8 div 2) 4 + c mod 4``
        - COL_AMPERE: ``(c div 32) 32 ceil32(R) + (r div 32) 1024 + 32 p + c mod 32``, with
          ``s = r mod 32`` and ``p = (s mod 8 div 2) 8 + (s div 8) 2 + s mod 2``

        where ``ceil8`` and ``ceil32`` round up to a multiple. Padding of the output is 0; padding
        of the input is not read.

    Dtypes:
        int8 or int32, on both sides.

    Shapes:
        Columns of the matrix are the last axis, rows are all axes before it. In ROW it is a tensor
        of its own shape, and (C, R) if the output is transposed. In the other layouts it is a
        tensor of two axes, as ``planq.layouts.buffer_shape`` says: (C, R) in COL, (R, ceil32(C)) in
        COL32, (ceil8(R), ceil32(C)) in COL_TURING, (ceil32(R), ceil32(C)) in COL_AMPERE. The
        formulas give positions in C order of that tensor, whose rows may have any stride.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT; elements are moved. Each is batch-invariant where both layouts
        are ROW and nothing is transposed.

    Attributes:
        shape: Shape of the input matrix.
        dtype: int8 or int32.
        from_layout: Memory layout of the input.
        to_layout: Memory layout of the output.
        transpose: Whether the output is the transposed matrix.

    Raises:
        DescriptorError: A shape of fewer than two axes, another dtype.

    Source:
        bitsandbytes 0.43 ``transform`` and ``nvidia_transform``, which have no way back to rows and
        leave it to the caller to clear the padding.
    """

    operator: ClassVar[str] = "transform_layout"

    shape: Shape
    dtype: DTypeField = "int8"
    from_layout: Layout = Layout.ROW
    to_layout: Layout
    transpose: bool = False


@args_class
class TransformLayoutArgs:
    """Operands of :class:`TransformLayoutDescriptor`.

    Attributes:
        input: The matrix in ``from_layout``.
        output: The matrix, or its transpose, in ``to_layout``, padding included.
    """

    input: Tensor
    output: Tensor


class TransformLayoutPlan(Plan):
    """A plan for :class:`TransformLayoutDescriptor`."""

    __slots__ = ()


register(TransformLayoutDescriptor, TransformLayoutArgs, TransformLayoutPlan)
