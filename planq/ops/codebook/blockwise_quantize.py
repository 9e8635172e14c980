"""The classes of `blockwise_quantize`."""

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
class BlockwiseQuantizeDescriptor(Descriptor):
    """Give each element the nearest place in a codebook, block by block of the flat tensor.

    When to use:
        Weights in NF4, FP4 or any 4-bit table (blocks of 64), optimizer states and anything else in
        8 bits (blocks of 256 to 4096); files that bitsandbytes reads.

    Formula:
        ``fl`` is one IEEE operation in the compute type C (float64 for float64 input, else
        float32). Blocks are ``block_size`` consecutive elements of the tensor in C order, across
        rows; the last one may be shorter. ``absmax = max|x|`` over the block.

        ``y = fl(x * fl(1 / absmax))`` (RECIPROCAL; ``fl(x / absmax)`` where ``1 / absmax``
        overflows) or ``fl(x / absmax)`` (DIVIDE). The code is the index of the codebook's value
        nearest to ``y``: ``y`` is compared with ``fl(fl(v_i + v_(i+1)) / 2)`` in float32. A tie
        goes to the even index (uint8) or to the lower value (uint4). NF4 and FP4 use the decimal
        constants of bitsandbytes as thresholds; FP4 compares magnitudes, and small negative
        elements take its -0. INT4 never uses its -0. In a GIVEN codebook, -0 comes before +0.

        A block of zeros has absmax 0 and the code of +0 everywhere. A block with a NaN or an
        infinity has absmax NaN and the code of +0 everywhere (PROPAGATE); or absmax is that of its
        finite elements, an infinity takes the value at its end and NaN counts as +0 (SATURATE).

        ``absmax_given``: ``absmax`` is an input and used as it is; 0 and NaN give the code of +0, a
        quotient that is NaN counts as +0.

        STOCHASTIC: between neighbours ``v_i <= y < v_(i+1)`` the upper one is taken where
        ``u < fl(fl(y - v_i) / fl(v_(i+1) - v_i))``, ``u = (w >> 8) * 2^-24``, ``w`` = word
        ``i mod 4`` of Philox4x32-10 with key ``seed`` and counter ``offset + i div 4``, ``i`` = the
        element's index in the tensor.

        Nested statistics: ``nested_offset`` is the mean of all absmax (a fixed pairwise tree of
        sums, then one division; 0 if there are none). ``absmax`` holds the codes of
        ``fl(absmax - nested_offset)``, quantized like this in blocks of ``nested_block_size`` with
        the DYNAMIC codebook, and ``nested_absmax`` their absmax. So a single NaN makes all
        statistics NaN. docs/numerics/codebook.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output uint8, uint4 (two codes a byte); absmax,
        nested_absmax and nested_offset C; nested statistics: absmax uint8; codebook float32; seed
        and offset integers of 64 bits.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape; uint4 is flat,
        ``(ceil(n / 2),)``: byte ``j`` holds the elements ``2 j`` and ``2 j + 1``, and the spare
        nibble behind an odd n is 0. ``absmax`` is ``(ceil(n / block_size),)``, ``nested_absmax``
        ``(ceil(blocks / nested_block_size),)``, ``nested_offset`` ``(1,)``, ``codebook``
        ``(entries,)``; ``seed`` and ``offset`` are one number.

    Workspace:
        Only nested statistics need some; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a block that is
        measured, nested statistics, draws (STOCHASTIC) or a byte (uint4).

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: uint8 or uint4.
        codebook: GIVEN is an operand of ascending, finite values; equal neighbours are allowed.
            DYNAMIC goes with uint8, NF4, FP4, INT4 and AF4 with uint4.
        entries: How many values a GIVEN codebook has: 2 to 256, at most 16 for uint4. Default: 256
            or 16.
        block_size: Elements of a block, at least 1.
        absmax_given: Whether ``absmax`` is an input.
        nested_block_size: How many absmax form a block of nested statistics; None: they are stored
            as floating values.
        quotient: RECIPROCAL as bitsandbytes' CUDA kernels, DIVIDE as its CPU backend.
        nonfinite: What a block with a NaN or an infinity becomes.
        rounding: NEAREST_EVEN or STOCHASTIC.
        nibble_order: uint4 only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: A codebook for another type of codes, too few or too many entries, a block
            size below 1, nested statistics of given absmax, RATIO, the rounding NONE.

    Source:
        bitsandbytes ``quantize_blockwise``, ``quantize_4bit`` and their nested statistics.
    """

    operator: ClassVar[str] = "blockwise_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    block_size: int
    absmax_given: bool = False
    nested_block_size: int | None = None
    quotient: Quotient = Quotient.RECIPROCAL
    nonfinite: NonFinite = NonFinite.PROPAGATE
    rounding: Rounding = Rounding.NEAREST_EVEN
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@args_class
class BlockwiseQuantizeArgs:
    """Operands of :class:`BlockwiseQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        absmax: Where the largest magnitudes go, one per block, or with nested statistics their
            codes; an input with ``absmax_given``.
        codebook: The values; None unless ``codebook`` is GIVEN.
        nested_absmax: Where the largest magnitudes of blocks of absmax go; None without nested
            statistics.
        nested_offset: Where the mean of all absmax goes; likewise.
        seed: Key of the random numbers: an integer or an int64 in memory; None unless STOCHASTIC.
        offset: First counter of the random numbers; likewise.
    """

    input: Tensor
    output: Tensor
    absmax: Tensor
    codebook: Tensor | None = None
    nested_absmax: Tensor | None = None
    nested_offset: Tensor | None = None
    seed: Scalar | None = None
    offset: Scalar | None = None


class BlockwiseQuantizePlan(Plan):
    """A plan for :class:`BlockwiseQuantizeDescriptor`."""

    __slots__ = ()


register(BlockwiseQuantizeDescriptor, BlockwiseQuantizeArgs, BlockwiseQuantizePlan)
