"""The classes of `embedding`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import DType, NibbleOrder
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class EmbeddingDescriptor(Descriptor):
    """Fetch rows of a table by index, and multiply them by a number if wanted.

    When to use:
        The first layer of a language model: the vectors of its tokens. A table of codes is
        dequantized row by row, as it is read.

    Formula:
        ``fl`` is one IEEE operation in float32. For ``i = index[r]`` with ``0 <= i < table_rows``:
        ``output[r, d] = round(fl(v * f))``, where ``f`` is ``factor``, rounded once to float32.
        Of a floating table ``v`` is the element ``table[i, d]``, widened to float32. Of codes it is
        ``fl(s * q)``, as :class:`DequantizeDescriptor` has it: ``q`` the code, ``s`` its scale,
        widened to float32. The order is ``fl(fl(s * q) * f)``. Without a factor there is no second
        product. A NaN becomes the canonical one of the output's type.

        Another index makes a row of +0. ``invalid`` is how many of them there are.

    Dtypes:
        table float16, bfloat16, float32, int8, int4 (two codes a byte along the last axis);
        output and scale float16, bfloat16, float32; index int32 or int64; factor float64; invalid
        int64.

    Shapes:
        ``shape`` is that of ``output``, ``(..., width)`` of rank 2 to 8, any extents, 0 included.
        ``index`` has it without the last axis; ``table`` is ``(table_rows, width)`` (int4: the
        width halved, rounded up); ``scale`` is ``(table_rows,)`` under ``token()``, and
        ``(table_rows, ceil(width / size))`` under ``group(size)``; ``invalid`` is ``(1,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: a row of ``output`` depends on its own index
        alone. ``invalid`` is of all indices.

    Attributes:
        shape: Shape of ``output``. Extents of its indices may be a ``Dim``.
        table_rows: How many rows the table has.
        table_dtype: Element type of the table.
        output_dtype: Element type of ``output``.
        index_dtype: Element type of the indices.
        scope: Tables of codes: which codes share a scale, those of a row (``token()``) or groups of
            its neighbours (``group(size)``, along the last axis).
        scale_dtype: Tables of codes: element type of the scales. Default: float32.
        nibble_order: int4: which nibble holds the first of two codes.

    Raises:
        DescriptorError: A type that is not listed, a shape of one axis, a negative number of rows,
            scales for a floating table, or another scope.

    Source:
        torch ``embedding``, which refuses indices that are out of range; Gemma's embeddings have
        the factor.
    """

    operator: ClassVar[str] = "embedding"

    shape: Shape
    table_rows: int
    table_dtype: DTypeField
    output_dtype: DTypeField
    index_dtype: DTypeField = DType.INT64
    scope: Scope = Scope.token()
    scale_dtype: DTypeField = None
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@args_class
class EmbeddingArgs:
    """Operands of :class:`EmbeddingDescriptor`.

    Attributes:
        table: The rows; any outer strides, innermost stride 1.
        index: Which row goes where, of any value; likewise.
        output: Where the rows go; likewise.
        scale: The scales of a table of codes; likewise; else None.
        factor: What rows are multiplied by, or where that is on the device. None: 1.
        invalid: Where the number of indices that name no row goes.
    """

    table: Tensor
    index: Tensor
    output: Tensor
    scale: Tensor | None = None
    factor: Scalar | None = None
    invalid: Tensor


class EmbeddingPlan(Plan):
    """A plan for :class:`EmbeddingDescriptor`."""

    __slots__ = ()


register(EmbeddingDescriptor, EmbeddingArgs, EmbeddingPlan)
