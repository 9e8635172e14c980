"""The classes of `gguf_dequantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.gguf.vocabulary import GgufType
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class GgufDequantizeDescriptor(Descriptor):
    """Turn the blocks of a tensor in a GGUF file into floats, all of them or rows by index.

    When to use:
        Weights of a GGUF file for layers that multiply floats, or for a look at their values. The
        bytes are those of the file, as they are: nothing is repacked. With ``table_rows``, the
        embeddings of tokens out of such a weight.

    Formula:
        ``fl`` is one IEEE operation in float32. Every element of a block has an integer code ``q``
        and a scale ``E``, which a sub-block of its neighbours shares; elements of some types also
        have a minimum ``C``. ``output = round(fl(fl(E * q) + C))``, and ``round(fl(E * q))`` where
        there is no ``C``. A NaN becomes the canonical one of the output's type.
        docs/numerics/gguf.md has ``q``, ``E`` and ``C`` of every type.

        With ``table_rows``, row ``r`` of the output is row ``index[r]`` of the blocks, where ``0 <=
        index[r] < table_rows``. Another index makes a row of +0; ``invalid`` is how many of them
        there are.

    Dtypes:
        input uint8, the bytes of the blocks; output float16, bfloat16, float32; index int32 or
        int64; invalid int64.

    Shapes:
        ``shape`` is that of ``output``: rank 1 to 8, any extents, 0 included, but the last one is a
        multiple of the elements in a block. ``input`` has the same axes before the last, which is
        that of the bytes: so many for each block. A file lists its axes the other way round. With
        ``table_rows``, ``shape`` is ``(..., k)`` of rank 2 to 8, ``index`` has it without the last
        axis, and ``input`` is ``table_rows`` rows of bytes; ``invalid`` is ``(1,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: an element depends on its own block alone,
        and on its row's index. ``invalid`` is of all indices.

    Attributes:
        shape: Shape of ``output``. Extents before the last may be a ``Dim``.
        type: What the blocks are.
        output_dtype: Element type of ``output``.
        table_rows: How many rows the blocks are of which ``index`` names some; None: there is no
            index.
        index_dtype: With ``table_rows``: element type of the indices. Default: int64.

    Raises:
        DescriptorError: A last axis that is no whole number of blocks, a shape without axes, or of
            one axis with ``table_rows``, a type that is not listed, or an ``index_dtype`` without
            ``table_rows``.

    Source:
        ggml's ``dequantize_row`` functions, and the ``dequantize`` of the Python package ``gguf``.
    """

    operator: ClassVar[str] = "gguf_dequantize"

    shape: Shape
    type: GgufType
    output_dtype: DTypeField
    table_rows: int | None = None
    index_dtype: DTypeField = None


@args_class
class GgufDequantizeArgs:
    """Operands of :class:`GgufDequantizeDescriptor`.

    Attributes:
        input: The bytes of the blocks, at any address; any outer strides, innermost stride 1.
        output: Where the numbers go; likewise.
        index: Which row goes where, of any value; likewise. None without ``table_rows``.
        invalid: Where the number of indices that name no row goes. None: nobody asks for it.
    """

    input: Tensor
    output: Tensor
    index: Tensor | None = None
    invalid: Tensor | None = None


class GgufDequantizePlan(Plan):
    """A plan for :class:`GgufDequantizeDescriptor`."""

    __slots__ = ()


register(GgufDequantizeDescriptor, GgufDequantizeArgs, GgufDequantizePlan)
