"""The classes of `gguf_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.gguf.vocabulary import GgufType
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class GgufQuantizeDescriptor(Descriptor):
    """Turn floats into the blocks of a tensor in a GGUF file.

    When to use:
        Weights for a GGUF file, or for operators that read its blocks. The bytes are those that
        ggml's quantizers write without an importance matrix and without fused operations.

    Formula:
        Every block is made of its own elements. Simple types take a scale from the largest
        magnitude, or from the least and the largest element. K-quants and IQ4 types search for the
        scale, and the minimum, of least weighted error. Every step is one IEEE operation in
        float32, in the order of docs/numerics/gguf.md, which has the rules of every type.

    Dtypes:
        input float16, bfloat16, float32; output uint8, the bytes of the blocks.

    Shapes:
        ``shape`` is that of ``input``: rank 1 to 8, any extents, 0 included, but the last one is a
        multiple of the elements in a block. ``output`` has the same axes before the last, which is
        that of the bytes: so many for each block. A file lists its axes the other way round.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: a block depends on its own elements alone.

    Attributes:
        shape: Shape of ``input``. Extents before the last may be a ``Dim``.
        input_dtype: Element type of ``input``.
        type: What the blocks are; none with a grid.

    Raises:
        DescriptorError: A last axis that is no whole number of blocks, a shape without axes, a type
            that is not listed, or one with a grid, whose points an importance matrix has to choose.

    Source:
        ggml's ``quantize_row_*_ref`` functions; of ``iq4_nl`` and ``iq4_xs``, ``quantize_iq4_nl``
        and ``quantize_iq4_xs``.
    """

    operator: ClassVar[str] = "gguf_quantize"

    shape: Shape
    input_dtype: DTypeField
    type: GgufType


@args_class
class GgufQuantizeArgs:
    """Operands of :class:`GgufQuantizeDescriptor`.

    Attributes:
        input: The numbers; any outer strides, innermost stride 1.
        output: Where the bytes of the blocks go, at any address; likewise.
    """

    input: Tensor
    output: Tensor


class GgufQuantizePlan(Plan):
    """A plan for :class:`GgufQuantizeDescriptor`."""

    __slots__ = ()


register(GgufQuantizeDescriptor, GgufQuantizeArgs, GgufQuantizePlan)
