"""The classes of `double_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Quotient
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class DoubleQuantizeDescriptor(Descriptor):
    """Quantize a matrix by its rows and by its columns, and list its outliers apart.

    When to use:
        LLM.int8 with a list of outliers (COO) instead of whole outlier columns, and its backward
        pass, which needs codes by columns. The list goes on to :class:`SpmmCooDescriptor`,
        :class:`CooToCsrDescriptor` and :class:`CooToCscDescriptor`.

    Formula:
        Outliers and the maxima of rows and columns are those of
        :class:`RowColumnAbsmaxDescriptor`. With M the maximum of an element's row or column,
        ``s = 1`` where M is 0, else ``max(fl(M / 127), 2^-126)``:

        ``code = clamp(rne(t), -127, 127)``, ``t`` one of ``fl(x / s)`` (DIVIDE), ``fl(x * fl(1 /
        s))`` (RECIPROCAL), ``fl(x * fl(127 / M))`` (RATIO; ``x`` where M is 0). The code of an
        outlier is 0 in both; so are all codes of a row or column whose M is NaN or infinite.

        The outliers are listed row by row, each row by ascending columns, with the values that they
        have. ``count`` is their number, which may be more than ``capacity``: the first ones are
        kept. Entries beyond have the indices -1 and the value 0.

    Dtypes:
        input float16, bfloat16, float32; codes int8; maxima float32; indices int32; value the
        input's type; count int64.

    Shapes:
        Rank 1 to 8, any extents, 0 included, and at most 2^31 - 1 rows and columns. The codes have
        the shape of ``input``, ``row_absmax`` is ``shape[:-1]``, ``column_absmax``
        ``(shape[-1],)``; ``row_index``, ``column_index`` and ``value`` are ``(capacity,)``,
        ``count`` is ``(1,)``. A row index counts rows of the matrix, all axes but the last.

    Workspace:
        Counts of outliers, where ``threshold`` is above 0; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: maxima of columns depend on all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        threshold: The smallest magnitude of an outlier. 0: there are no outliers.
        capacity: The largest number of outliers that are listed.
        quotient: How elements are divided. RATIO is bitsandbytes' rule.

    Raises:
        DescriptorError: Another dtype, a threshold that is negative or not finite, a capacity
            below 0 or above 2^31 - 1, more rows or columns than int32 counts.

    Source:
        bitsandbytes ``double_quant``. There, an outlier's code by columns wraps around, the order
        of the list changes from run to run, the host waits for its length, and a tensor of three
        axes gets wrong sizes.
    """

    operator: ClassVar[str] = "double_quantize"

    shape: Shape
    input_dtype: DTypeField
    threshold: float = 0
    capacity: int = 0
    quotient: Quotient = Quotient.DIVIDE


@args_class
class DoubleQuantizeArgs:
    """Operands of :class:`DoubleQuantizeDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        row_absmax: Where the maxima of rows go; likewise.
        column_absmax: Where the maxima of columns go.
        row_codes: Where the codes by rows go; any outer strides, innermost stride 1.
        column_codes: Where the codes by columns go; likewise.
        row_index: Where the rows of outliers go.
        column_index: Where their columns go.
        value: Where their values go.
        count: Where their number goes.
    """

    input: Tensor
    row_absmax: Tensor
    column_absmax: Tensor
    row_codes: Tensor
    column_codes: Tensor
    row_index: Tensor
    column_index: Tensor
    value: Tensor
    count: Tensor


class DoubleQuantizePlan(Plan):
    """A plan for :class:`DoubleQuantizeDescriptor`."""

    __slots__ = ()


register(DoubleQuantizeDescriptor, DoubleQuantizeArgs, DoubleQuantizePlan)
