"""The classes of `row_column_absmax`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class RowColumnAbsmaxDescriptor(Descriptor):
    """Measure the largest magnitude of every row and every column, without outliers.

    When to use:
        Before the steps of LLM.int8 are made one by one, and to see where outliers are. To have
        codes and outliers as well, :class:`DoubleQuantizeDescriptor` measures by itself.

    Formula:
        The tensor is a matrix, whose rows are all axes but the last. An element is an outlier where
        ``threshold > 0`` and ``|x| >= threshold``, compared as real numbers; an infinity then is
        one, a NaN never is.

        ``row_absmax[r]`` and ``column_absmax[c]`` are the largest ``|x|`` of the elements that are
        no outliers, 0 where there is none. A NaN among them, or an infinity where ``threshold`` is
        0, gives NaN or infinity. ``tile_count[r, t]`` is the number of outliers of row ``r`` in
        the columns ``256 t`` to ``256 t + 255``.

    Dtypes:
        input float16, bfloat16, float32; maxima float32, exact; counts int32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``row_absmax`` is ``shape[:-1]``, ``column_absmax``
        ``(shape[-1],)``, ``tile_count`` ``(*shape[:-1], ceil(shape[-1] / 256))``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: maxima of columns depend on all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        threshold: The smallest magnitude of an outlier. 0: there are no outliers.

    Raises:
        DescriptorError: Another dtype, a threshold that is negative or not finite.

    Source:
        bitsandbytes ``get_colrow_absmax``, for float16 alone. Its ``nnz_block_ptr`` holds running
        sums of these counts in the order of its tiles; docs/numerics/outlier.md derives it.
    """

    operator: ClassVar[str] = "row_column_absmax"

    shape: Shape
    input_dtype: DTypeField
    threshold: float = 0


@args_class
class RowColumnAbsmaxArgs:
    """Operands of :class:`RowColumnAbsmaxDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        row_absmax: Where the maxima of rows go; likewise.
        column_absmax: Where the maxima of columns go.
        tile_count: Where the numbers of outliers go; any outer strides, innermost stride 1.
    """

    input: Tensor
    row_absmax: Tensor
    column_absmax: Tensor
    tile_count: Tensor


class RowColumnAbsmaxPlan(Plan):
    """A plan for :class:`RowColumnAbsmaxDescriptor`."""

    __slots__ = ()


register(RowColumnAbsmaxDescriptor, RowColumnAbsmaxArgs, RowColumnAbsmaxPlan)
