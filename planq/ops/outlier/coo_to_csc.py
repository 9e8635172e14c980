"""The classes of `coo_to_csc`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class CooToCscDescriptor(Descriptor):
    """Sort a list of entries by columns, and find where each column begins.

    When to use:
        To hand outliers to code that wants CSC (:class:`planq.CSC`), and to know which columns have
        outliers: those whose pointers differ from the next one.

    Formula:
        Of the first ``min(count, capacity)`` entries, those whose column lies in the matrix are
        put in the order of their columns; entries of one column stay in the order of the list.
        ``pointer[c]`` is the number of entries whose column is below ``c``, for ``c`` from 0 to the
        number of columns. Places beyond the last entry have the row -1 and the value 0.

    Dtypes:
        indices and pointer int32; values float16, bfloat16, float32, moved bit by bit; count int64.

    Shapes:
        ``shape`` is that of the matrix, rank 1 to 8, any extents, 0 included; its columns are the
        last axis. ``pointer`` is ``(columns + 1,)``, ``count`` ``(1,)``, everything else
        ``(capacity,)``.

    Workspace:
        On CUDA two index lists and the counters of a sort; ``plan.workspace_size()`` says how much.

    Guarantee:
        Every kernel is BIT_EXACT; no arithmetic is done. None is batch-invariant: all rows together
        make one result.

    Attributes:
        shape: Shape of the matrix.
        capacity: The largest number of entries in the list.
        value_dtype: Element type of the values.

    Raises:
        DescriptorError: Another dtype, a capacity below 0 or above 2^31 - 1.

    Source:
        bitsandbytes ``coo2csc``, whose sort does not fix the order of entries in a column.
    """

    operator: ClassVar[str] = "coo_to_csc"

    shape: Shape
    capacity: int
    value_dtype: DTypeField


@args_class
class CooToCscArgs:
    """Operands of :class:`CooToCscDescriptor`.

    Attributes:
        row_index: The rows of the entries.
        column_index: Their columns.
        value: Their values.
        count: How many entries there are.
        pointer: Where the starts of columns go.
        output_row_index: Where the rows go, column by column.
        output_value: Where the values go, likewise.
    """

    row_index: Tensor
    column_index: Tensor
    value: Tensor
    count: Tensor
    pointer: Tensor
    output_row_index: Tensor
    output_value: Tensor


class CooToCscPlan(Plan):
    """A plan for :class:`CooToCscDescriptor`."""

    __slots__ = ()


register(CooToCscDescriptor, CooToCscArgs, CooToCscPlan)
