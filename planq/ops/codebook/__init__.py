"""The codebook family: codes are places in a table of values, scaled by the largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from planq.descriptor import Descriptor
from planq.dtypes import Codebook, DTypeLike, NibbleOrder, NonFinite, Quotient, Rounding
from planq.plan import Plan
from planq.registry import register

__all__ = [
    "BlockwiseDequantizeArgs",
    "BlockwiseDequantizeDescriptor",
    "BlockwiseDequantizePlan",
    "BlockwiseQuantizeArgs",
    "BlockwiseQuantizeDescriptor",
    "BlockwiseQuantizePlan",
    "CodebookDequantizeArgs",
    "CodebookDequantizeDescriptor",
    "CodebookDequantizePlan",
    "CodebookQuantizeArgs",
    "CodebookQuantizeDescriptor",
    "CodebookQuantizePlan",
    "EstimateQuantilesArgs",
    "EstimateQuantilesDescriptor",
    "EstimateQuantilesPlan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        goes to the even index (uint8) or to the lower value (uint4). NF4 and FP4 have bitsandbytes'
        decimals as thresholds, FP4 on magnitudes and with -0 for small negative elements. INT4
        never uses its -0. A GIVEN codebook ranks -0 before +0.

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
        statistics NaN. docs/numerics.md holds the whole contract.

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
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: uint8 or uint4.
        codebook: GIVEN is an operand of ascending, finite values; equal neighbours are allowed.
            DYNAMIC goes with uint8, NF4, FP4, INT4 and AF4 with uint4.
        entries: Values of a GIVEN codebook: 2 to 256, for uint4 to 16. Default: all of them.
        block_size: Elements of a block, at least 1.
        absmax_given: Whether ``absmax`` is an input.
        nested_block_size: Absmax of a block of nested statistics; None: absmax are stored as such.
        quotient: RECIPROCAL is what bitsandbytes' CUDA kernels store, DIVIDE its CPU backend.
        nonfinite: What a block with a NaN or an infinity becomes.
        rounding: NEAREST_EVEN or STOCHASTIC.
        nibble_order: uint4 only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: A codebook of other codes, too few or too many entries, a block of no
            elements, nested statistics of given absmax, RATIO, the rounding NONE.

    Source:
        bitsandbytes ``quantize_blockwise``, ``quantize_4bit`` and their nested statistics.
    """

    operator: ClassVar[str] = "blockwise_quantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    block_size: int
    absmax_given: bool = False
    nested_block_size: int | None = None
    quotient: Quotient = Quotient.RECIPROCAL
    nonfinite: NonFinite = NonFinite.PROPAGATE
    rounding: Rounding = Rounding.NEAREST_EVEN
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@dataclass(slots=True, kw_only=True)
class BlockwiseQuantizeArgs:
    """Operands of :class:`BlockwiseQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        absmax: Where the largest magnitudes go, one per block, or their codes; with
            ``absmax_given`` what they are.
        codebook: The values; None unless ``codebook`` is GIVEN.
        nested_absmax: Where the largest magnitudes of blocks of absmax go; None without nested
            statistics.
        nested_offset: Where the mean of all absmax goes; likewise.
        seed: Key of the draws: an integer or an int64 in memory; None unless STOCHASTIC.
        offset: First counter of the draws; likewise.
    """

    input: Any
    output: Any
    absmax: Any
    codebook: Any = None
    nested_absmax: Any = None
    nested_offset: Any = None
    seed: Any = None
    offset: Any = None


class BlockwiseQuantizePlan(Plan):
    """A plan for :class:`BlockwiseQuantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseDequantizeDescriptor(Descriptor):
    """Give the codes of flat blocks their values back, decoding nested statistics on the way.

    When to use:
        The inverse of :class:`BlockwiseQuantizeDescriptor`, and of what bitsandbytes stored.

    Formula:
        ``fl`` is one IEEE operation in the compute type C (float64 for float64 output, else
        float32). ``y = round(fl(v[q] * absmax))`` with the codebook's value and the block's absmax
        in C. A code beyond the entries of a GIVEN codebook is NaN.

        Nested statistics: ``absmax_k = fl(fl(v'[q_k] * a) + nested_offset)``, where ``v'`` is
        ``nested_codebook`` and ``a`` is ``nested_absmax[k div nested_block_size]``.

        A NaN result is the canonical NaN of the output's type.

    Dtypes:
        input uint8, uint4 (two codes a byte); output float16, bfloat16, float32, float64; absmax,
        nested_absmax and nested_offset float32 or float64; nested statistics: absmax uint8;
        codebook and nested_codebook float32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` has the output's shape; uint4 is flat,
        ``(ceil(n / 2),)``. ``absmax`` is ``(ceil(n / block_size),)``, ``nested_absmax``
        ``(ceil(blocks / nested_block_size),)``, ``nested_offset`` ``(1,)``, ``codebook``
        ``(entries,)``, ``nested_codebook`` ``(256,)``.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: uint8 or uint4.
        output_dtype: Element type of ``output``.
        codebook: As in the forward.
        entries: Values of a GIVEN codebook: 2 to 256, for uint4 to 16. Default: all of them.
        block_size: Elements of a block, at least 1.
        absmax_dtype: float32, or float64 for float64 output. Default: C.
        nested_block_size: Absmax of a block of nested statistics; None: absmax are stored as such.
        nibble_order: uint4 only: which nibble holds the first of two codes.

    Raises:
        DescriptorError: A codebook of other codes, too few or too many entries, a block of no
            elements, absmax of another type.

    Source:
        bitsandbytes ``dequantize_blockwise``, ``dequantize_4bit`` and their nested statistics.
    """

    operator: ClassVar[str] = "blockwise_dequantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    block_size: int
    absmax_dtype: DTypeLike = None
    nested_block_size: int | None = None
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@dataclass(slots=True, kw_only=True)
class BlockwiseDequantizeArgs:
    """Operands of :class:`BlockwiseDequantizeDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        absmax: The largest magnitudes, one per block, or their codes.
        codebook: The values; None unless ``codebook`` is GIVEN.
        nested_absmax: The largest magnitudes of blocks of absmax; None without nested statistics.
        nested_offset: The mean of all absmax; likewise.
        nested_codebook: The values that the codes in ``absmax`` stand for; likewise.
    """

    input: Any
    output: Any
    absmax: Any
    codebook: Any = None
    nested_absmax: Any = None
    nested_offset: Any = None
    nested_codebook: Any = None


class BlockwiseDequantizePlan(Plan):
    """A plan for :class:`BlockwiseDequantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
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
        ``plan.workspace_size()`` says; host rows need none.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: uint8 or uint4.
        codebook: GIVEN is an operand of ascending, finite values; equal neighbours are allowed.
            DYNAMIC goes with uint8, NF4, FP4, INT4 and AF4 with uint4.
        entries: Values of a GIVEN codebook: 2 to 256, for uint4 to 16. Default: all of them.
        normalized: The elements are used as they are, without an absmax.
        absmax_given: Whether ``absmax`` is an input.
        quotient: How an element is divided by absmax: RECIPROCAL or DIVIDE.
        nonfinite: What a tensor with a NaN or an infinity becomes.
        rounding: NEAREST_EVEN or STOCHASTIC.
        nibble_order: uint4 only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: A codebook of other codes, too few or too many entries, absmax given for
            normalized elements, RATIO, the rounding NONE.

    Source:
        bitsandbytes ``quantize`` and ``quantize_no_absmax``.
    """

    operator: ClassVar[str] = "codebook_quantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    normalized: bool = False
    absmax_given: bool = False
    quotient: Quotient = Quotient.RECIPROCAL
    nonfinite: NonFinite = NonFinite.PROPAGATE
    rounding: Rounding = Rounding.NEAREST_EVEN
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@dataclass(slots=True, kw_only=True)
class CodebookQuantizeArgs:
    """Operands of :class:`CodebookQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        absmax: Where the largest magnitude goes, or with ``absmax_given`` what it is; None for
            normalized elements.
        codebook: The values; None unless ``codebook`` is GIVEN.
        seed: Key of the draws: an integer or an int64 in memory; None unless STOCHASTIC.
        offset: First counter of the draws; likewise.
    """

    input: Any
    output: Any
    absmax: Any = None
    codebook: Any = None
    seed: Any = None
    offset: Any = None


class CodebookQuantizePlan(Plan):
    """A plan for :class:`CodebookQuantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
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
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: uint8 or uint4.
        output_dtype: Element type of ``output``.
        codebook: As in the forward.
        entries: Values of a GIVEN codebook: 2 to 256, for uint4 to 16. Default: all of them.
        normalized: There is no absmax: the values are the result.
        absmax_dtype: float32, or float64 for float64 output. Default: C.
        nibble_order: uint4 only: which nibble holds the first of two codes.

    Raises:
        DescriptorError: A codebook of other codes, too few or too many entries, absmax of another
            type.

    Source:
        bitsandbytes ``dequantize`` and ``dequantize_no_absmax``.
    """

    operator: ClassVar[str] = "codebook_dequantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    normalized: bool = False
    absmax_dtype: DTypeLike = None
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@dataclass(slots=True, kw_only=True)
class CodebookDequantizeArgs:
    """Operands of :class:`CodebookDequantizeDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        absmax: The largest magnitude; None for normalized elements.
        codebook: The values; None unless ``codebook`` is GIVEN.
    """

    input: Any
    output: Any
    absmax: Any = None
    codebook: Any = None


class CodebookDequantizePlan(Plan):
    """A plan for :class:`CodebookDequantizeDescriptor`."""

    __slots__ = ()


register(BlockwiseQuantizeDescriptor, BlockwiseQuantizeArgs, BlockwiseQuantizePlan)
register(BlockwiseDequantizeDescriptor, BlockwiseDequantizeArgs, BlockwiseDequantizePlan)
register(CodebookQuantizeDescriptor, CodebookQuantizeArgs, CodebookQuantizePlan)
register(CodebookDequantizeDescriptor, CodebookDequantizeArgs, CodebookDequantizePlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuantilesDescriptor(Descriptor):
    """Find evenly spaced quantiles of all elements: exact order statistics, without sorting.

    When to use:
        Codebooks that follow the distribution of a tensor, as bitsandbytes' quantile maps; and
        wherever percentiles of large tensors are wanted on the stream.

    Formula:
        With ``x`` the elements in ascending order, ``n`` of them,
        ``output[j] = x[round((tail + j * (1 - 2 * tail) / (quantiles - 1)) * (n - 1))]``:
        operations in float64 from left to right, halves rounded up. Each output is the value of an
        element, exact for every ``n``: the error bound is zero. -0 is stored as +0.

        Infinities are numbers like others. A NaN makes every output NaN (PROPAGATE), or does not
        count as an element (SATURATE). Without elements that count, every output is NaN.
        docs/numerics.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output float32, of float64 input float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` is ``(quantiles,)``.

    Workspace:
        The same for every tensor of a type, about 130 KiB; ``plan.workspace_size()`` says.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        quantiles: How many, 2 to 256.
        tail: The share of elements below the first quantile and above the last one, at least 0 and
            below 0.5. Default: ``1 / (2 * quantiles)``, the middles of as many equal shares.
        nonfinite: What a NaN does.

    Raises:
        DescriptorError: ``quantiles`` outside of 2 to 256, ``tail`` outside of [0, 0.5).

    Source:
        bitsandbytes ``estimate_quantiles``, whose ``offset`` is ``tail``. It averages the quantiles
        of chunks of 4096 elements in the input's type and in no fixed order, skips a last chunk
        that is not whole, and wants at least 256 elements; here all elements count, once.
    """

    operator: ClassVar[str] = "estimate_quantiles"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    quantiles: int = 256
    tail: float | None = None
    nonfinite: NonFinite = NonFinite.PROPAGATE


@dataclass(slots=True, kw_only=True)
class EstimateQuantilesArgs:
    """Operands of :class:`EstimateQuantilesDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: Where the quantiles go, in ascending order.
    """

    input: Any
    output: Any


class EstimateQuantilesPlan(Plan):
    """A plan for :class:`EstimateQuantilesDescriptor`."""

    __slots__ = ()


register(EstimateQuantilesDescriptor, EstimateQuantilesArgs, EstimateQuantilesPlan)
