"""The classes of `extract_outliers`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.outlier.vocabulary import Layout
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class ExtractOutliersDescriptor(Descriptor):
    """Copy the columns that a list names out of a matrix of integers in any layout.

    When to use:
        To copy the columns of an int8 weight that belong to outliers of the activations. The list
        of outlier columns is on the device; neither its indices nor their number are read back.

    Formula:
        ``output[r, j] = A[r, index[j]]`` for ``j < min(count, capacity)``, and 0 for the positions
        after them. An index outside of ``[0, C)`` gives 0, with C the number of columns.

    Dtypes:
        input and output int8 or int32; index int32; count int64.

    Shapes:
        input: what ``planq.layouts.buffer_shape(shape, layout)`` says; see
        :class:`TransformLayoutDescriptor`. index ``(capacity,)``, count ``(1,)``, output ``shape``
        with ``capacity`` in the place of the last axis.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant; elements are copied.

    Attributes:
        shape: Shape of the matrix: its columns are the last axis, its rows all axes before.
        dtype: int8 or int32.
        layout: Memory layout of the matrix.
        capacity: The largest number of columns in the list; 0 or more.

    Raises:
        DescriptorError: A shape of fewer than two axes, another dtype, a negative capacity.

    Source:
        bitsandbytes 0.43 ``extract_outliers``, for COL_TURING and COL_AMPERE alone.
    """

    operator: ClassVar[str] = "extract_outliers"

    shape: Shape
    dtype: DTypeField = "int8"
    layout: Layout = Layout.ROW
    capacity: int


@args_class
class ExtractOutliersArgs:
    """Operands of :class:`ExtractOutliersDescriptor`.

    Attributes:
        input: The matrix.
        index: The columns to copy, in the order of the output.
        count: How many columns are listed; a number above ``capacity`` counts as ``capacity``.
        output: The columns.
    """

    input: Tensor
    index: Tensor
    count: Tensor
    output: Tensor


class ExtractOutliersPlan(Plan):
    """A plan for :class:`ExtractOutliersDescriptor`."""

    __slots__ = ()


register(ExtractOutliersDescriptor, ExtractOutliersArgs, ExtractOutliersPlan)
