"""The classes of `coo_to_csr`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class CooToCsrDescriptor(Descriptor):
    """Find where each row begins in a row-major list of entries.

    When to use:
        To hand outliers to code that wants CSR (:class:`planq.CSR`): the columns and values of the
        list are those of CSR as they are.

    Formula:
        ``pointer[r]`` is the number of entries whose row is below ``r``, for ``r`` from 0 to the
        number of rows, of the first ``min(count, capacity)`` entries. Their rows ascend, as those
        of every list that planq writes.

    Dtypes:
        row_index and pointer int32; count int64.

    Shapes:
        ``shape`` is that of the matrix, rank 1 to 8, any extents, 0 included; its rows are all axes
        but the last. ``row_index`` is ``(capacity,)``, ``count`` ``(1,)``, ``pointer``
        ``(rows + 1,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT; no arithmetic is done. None is batch-invariant: all rows together
        make one result.

    Attributes:
        shape: Shape of the matrix.
        capacity: The largest number of entries in the list.

    Raises:
        DescriptorError: A capacity below 0 or above 2^31 - 1.

    Source:
        bitsandbytes ``coo2csr``.
    """

    operator: ClassVar[str] = "coo_to_csr"

    shape: Shape
    capacity: int


@args_class
class CooToCsrArgs:
    """Operands of :class:`CooToCsrDescriptor`.

    Attributes:
        row_index: The rows of the entries, ascending.
        count: How many entries there are.
        pointer: Where the starts of rows go.
    """

    row_index: Tensor
    count: Tensor
    pointer: Tensor


class CooToCsrPlan(Plan):
    """A plan for :class:`CooToCsrDescriptor`."""

    __slots__ = ()


register(CooToCsrDescriptor, CooToCsrArgs, CooToCsrPlan)
