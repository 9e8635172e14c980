"""The classes of `codebook_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NibbleOrder, NonFinite, Quotient, Rounding
from planq.ops.codebook.vocabulary import Codebook
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class CodebookQuantizeDescriptor(Descriptor):
    """Give each element the nearest place in a codebook, over one absmax for the whole tensor.

    When to use:
        Small tensors, values that are normalized already, and a range that must be the same
        everywhere.

    Formula:
        That of :class:`BlockwiseQuantizeDescriptor` with the tensor as one block. A tensor without
        elements has absmax 0.

        ``normalized``: there is no absmax, ``y`` is the element itself; a NaN counts as +0 and an
        infinity takes the value at its end, whatever ``nonfinite`` says.

    Dtypes:
        input float16, bfloat16, float32, float64; output uint8, uint4 (two codes a byte); absmax
        C (float64 for float64 input, else float32); codebook float32; seed and offset integers of
        64 bits.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape; uint4 is flat,
        ``(ceil(n / 2),)``. ``absmax`` is ``(1,)``, ``codebook`` ``(entries,)``; ``seed`` and
        ``offset`` are one number.

    Workspace:
        ``plan.workspace_size()`` says; host kernels need none.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where nothing is measured (``normalized``,
        ``absmax_given``) and no two rows share draws (STOCHASTIC) or a byte (uint4).

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: uint8 or uint4.
        codebook: GIVEN is an operand of ascending, finite values; equal neighbours are allowed.
            DYNAMIC goes with uint8, NF4, FP4, INT4 and AF4 with uint4.
        entries: How many values a GIVEN codebook has: 2 to 256, at most 16 for uint4. Default: 256
            or 16.
        normalized: The elements are used as they are, without an absmax.
        absmax_given: Whether ``absmax`` is an input.
        quotient: How an element is divided by absmax: RECIPROCAL or DIVIDE.
        nonfinite: What a tensor with a NaN or an infinity becomes.
        rounding: NEAREST_EVEN or STOCHASTIC.
        nibble_order: uint4 only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: A codebook for another type of codes, too few or too many entries, absmax
            given for normalized elements, RATIO, the rounding NONE.

    Source:
        bitsandbytes ``quantize`` and ``quantize_no_absmax``.
    """

    operator: ClassVar[str] = "codebook_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    normalized: bool = False
    absmax_given: bool = False
    quotient: Quotient = Quotient.RECIPROCAL
    nonfinite: NonFinite = NonFinite.PROPAGATE
    rounding: Rounding = Rounding.NEAREST_EVEN
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@args_class
class CodebookQuantizeArgs:
    """Operands of :class:`CodebookQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        absmax: Where the largest magnitude goes; an input with ``absmax_given``; None for
            normalized elements.
        codebook: The values; None unless ``codebook`` is GIVEN.
        seed: Key of the random numbers: an integer or an int64 in memory; None unless STOCHASTIC.
        offset: First counter of the random numbers; likewise.
    """

    input: Tensor
    output: Tensor
    absmax: Tensor | None = None
    codebook: Tensor | None = None
    seed: Scalar | None = None
    offset: Scalar | None = None


class CodebookQuantizePlan(Plan):
    """A plan for :class:`CodebookQuantizeDescriptor`."""

    __slots__ = ()


register(CodebookQuantizeDescriptor, CodebookQuantizeArgs, CodebookQuantizePlan)
