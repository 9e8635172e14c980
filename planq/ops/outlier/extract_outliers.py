"""The classes of `extract_outliers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.outlier.vocabulary import Layout
from planq.plan import Plan
from planq.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOutliersDescriptor(Descriptor):
    """Copy the columns that a list names out of a matrix of integers in any layout.

    When to use:
        For the columns of an int8 weight that belong to outliers of the activations, as the list
        of outliers is on the device: neither its names nor their number have to be read back.

    Formula:
        ``output[r, j] = A[r, index[j]]`` for ``j < min(count, capacity)``, and 0 for the positions
        after them. A name outside of ``[0, C)`` gives 0.

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
        shape: Of the matrix: its columns are the last axis, its rows all axes before.
        dtype: int8 or int32.
        layout: How the matrix lies in memory.
        capacity: How many names the list has room for; 0 or more.

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


@dataclass(slots=True, kw_only=True)
class ExtractOutliersArgs:
    """Operands of :class:`ExtractOutliersDescriptor`.

    Attributes:
        input: The matrix.
        index: The columns to copy, in the order of the output.
        count: How many of them count; more than there is room for is as many as there is room for.
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
