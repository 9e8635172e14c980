"""The classes of `blockwise_dequantize`."""

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
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        input_dtype: uint8 or uint4.
        output_dtype: Element type of ``output``.
        codebook: As in :class:`BlockwiseQuantizeDescriptor`.
        entries: How many values a GIVEN codebook has: 2 to 256, at most 16 for uint4. Default: 256
            or 16.
        block_size: Elements of a block, at least 1.
        absmax_dtype: float32, or float64 for float64 output. Default: C.
        nested_block_size: How many absmax form a block of nested statistics; None: they are stored
            as floating values.
        nibble_order: uint4 only: which nibble holds the first of two codes.

    Raises:
        DescriptorError: A codebook for another type of codes, too few or too many entries, a block
            size below 1, absmax of another type.

    Source:
        bitsandbytes ``dequantize_blockwise``, ``dequantize_4bit`` and their nested statistics.
    """

    operator: ClassVar[str] = "blockwise_dequantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    codebook: Codebook = Codebook.GIVEN
    entries: int | None = None
    block_size: int
    absmax_dtype: DTypeField = None
    nested_block_size: int | None = None
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST


@args_class
class BlockwiseDequantizeArgs:
    """Operands of :class:`BlockwiseDequantizeDescriptor`.

    Attributes:
        input: The codes; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        absmax: The largest magnitudes, one per block; with nested statistics their codes.
        codebook: The values; None unless ``codebook`` is GIVEN.
        nested_absmax: The largest magnitudes of blocks of absmax; None without nested statistics.
        nested_offset: The mean of all absmax; likewise.
        nested_codebook: The values that the codes in ``absmax`` stand for; likewise.
    """

    input: Tensor
    output: Tensor
    absmax: Tensor
    codebook: Tensor | None = None
    nested_absmax: Tensor | None = None
    nested_offset: Tensor | None = None
    nested_codebook: Tensor | None = None


class BlockwiseDequantizePlan(Plan):
    """A plan for :class:`BlockwiseDequantizeDescriptor`."""

    __slots__ = ()


register(BlockwiseDequantizeDescriptor, BlockwiseDequantizeArgs, BlockwiseDequantizePlan)
