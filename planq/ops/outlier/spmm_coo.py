"""The classes of `spmm_coo`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class SpmmCooDescriptor(Descriptor):
    """Multiply a sparse matrix, a list of entries, with a dense weight.

    When to use:
        For the outliers of LLM.int8, whose product goes onto that of the codes (``accumulate``),
        with the weight in 16 bits or in int8.

    Formula:
        ``fl`` is one float32 operation. The entries of row ``m``, among the first ``min(count,
        capacity)`` of the list, are taken in their order, those whose column lies in the matrix:
        ``t = +0``, then ``t = fma(value, w, t)`` with ``w`` the weight of the entry's column and of
        output column ``n``. An int8 weight is its code, and ``u = fl(fl(t * stats[n]) * fl(1 /
        127))``; else ``u = t``. The output is ``round(u)``, or with ``accumulate``
        ``round(fl(output + u))``; rounded once to the output's type, a NaN to its canonical one.

        A row without entries is +0; with ``accumulate`` it is left as it is.

        The rows of the list ascend, as those of every list that planq writes; a row may have any
        number of entries.

    Dtypes:
        value and output float16, bfloat16, float32; weight float16, bfloat16, int8; stats float32;
        indices int32; count int64.

    Shapes:
        ``shape`` is that of the sparse matrix, rank 1 to 8, any extents, 0 included; its rows are
        all axes but the last, k. ``weight_shape`` is ``(n, k)``, with ``transpose_weight``
        ``(k, n)``; ``output`` is ``(*shape[:-1], n)``, ``stats`` ``(n,)``, ``count`` ``(1,)``, the
        rest ``(capacity,)``.

    Workspace:
        On CUDA a pointer for each row; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of the sparse matrix.
        capacity: The largest number of entries in the list.
        value_dtype: Element type of the values.
        weight_shape: Shape of the weight.
        weight_dtype: Element type of the weight. int8 needs the operand ``stats``.
        output_dtype: Element type of ``output``.
        accumulate: Whether the product is added to what ``output`` holds.
        transpose_weight: Whether the weight is ``(k, n)``.

    Raises:
        DescriptorError: Another dtype, a weight with another k than ``shape``, a capacity below 0
            or above 2^31 - 1.

    Source:
        bitsandbytes ``spmm_coo`` and ``spmm_coo_very_sparse``, whose weight is ``(k, n)``. There, a
        row has at most 32 entries, and the sum is rounded to float16 after each of them.
    """

    operator: ClassVar[str] = "spmm_coo"

    shape: Shape
    capacity: int
    value_dtype: DTypeField
    weight_shape: Shape
    weight_dtype: DTypeField
    output_dtype: DTypeField
    accumulate: bool = False
    transpose_weight: bool = False


@args_class
class SpmmCooArgs:
    """Operands of :class:`SpmmCooDescriptor`.

    Attributes:
        row_index: The rows of the entries, ascending.
        column_index: Their columns.
        value: Their values.
        count: How many entries there are.
        weight: The dense weight; any outer strides, innermost stride 1.
        stats: The absmax of each output column's codes; int8 only.
        output: Where the product goes, or what it is added to; any outer strides, innermost
            stride 1.
    """

    row_index: Tensor
    column_index: Tensor
    value: Tensor
    count: Tensor
    weight: Tensor
    stats: Tensor | None = None
    output: Tensor


class SpmmCooPlan(Plan):
    """A plan for :class:`SpmmCooDescriptor`."""

    __slots__ = ()


register(SpmmCooDescriptor, SpmmCooArgs, SpmmCooPlan)
