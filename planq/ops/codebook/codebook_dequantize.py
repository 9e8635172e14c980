"""The classes of `codebook_dequantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NibbleOrder
from planq.ops.codebook.vocabulary import Codebook
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class CodebookDequantizeDescriptor(Descriptor):
    """Give the codes of a codebook their values back, over one absmax for the whole tensor.

    When to use:
        The inverse of :class:`CodebookQuantizeDescriptor`, and a lookup in a table of up to 256
        values.

    Formula:
        ``y = round(fl(v[q] * absmax))``, or ``round(v[q])`` for normalized elements, in the compute
        type C (float64 for float64 output, else float32). A code beyond the entries of a GIVEN
        codebook is NaN. A NaN result is the canonical NaN of the output's type.

    Dtypes:
        input uint8, uint4 (two codes a byte); output float16, bfloat16, float32, float64; absmax
        float32 or float64; codebook float32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` has the output's shape; uint4 is flat,
        ``(ceil(n / 2),)``. ``absmax`` is ``(1,)``, ``codebook`` ``(entries,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: uint8 or uint4.
        output_dtype: Element type of ``output``.
        codebook: As in :class:`CodebookQuantizeDescriptor`.
        entries: How many values a GIVEN codebook has: 2 to 256, at most 16 for uint4. Default: 256
            or 16.
        normalized: There is no absmax: the codebook's values are the result.
        absmax_dtype: float32, or float64 for float64 output. Default: C.
        nibble_order: uint4 only: which nibble holds the first of two codes.

    Raises:
        DescriptorError: A codebook for another type of codes, too few or too many entries, absmax
            of another type.

    Source:
        bitsandbytes ``dequantize`` and ``dequantize_no_absmax``.
    """

    operator: ClassVar[str] = "codebook_dequantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    normalized: bool = False
    absmax_dtype: DTypeField = None
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@args_class
class CodebookDequantizeArgs:
    """Operands of :class:`CodebookDequantizeDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        absmax: The largest magnitude; None for normalized elements.
        codebook: The values; None unless ``codebook`` is GIVEN.
    """

    input: Tensor
    output: Tensor
    absmax: Tensor | None = None
    codebook: Tensor | None = None


class CodebookDequantizePlan(Plan):
    """A plan for :class:`CodebookDequantizeDescriptor`."""

    __slots__ = ()


register(CodebookDequantizeDescriptor, CodebookDequantizeArgs, CodebookDequantizePlan)
