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
    """Turn the blocks of a tensor in a GGUF file into floats.

    When to use:
        Weights of a GGUF file for layers that multiply floats, or for a look at their values. The
        bytes are those of the file, as they are: nothing is repacked.

    Formula:
        ``fl`` is one IEEE operation in float32. Every element of a block has an integer code ``q``
        and a scale ``E``, which a sub-block of its neighbours shares; elements of some types also
        have a minimum ``C``. ``output = round(fl(fl(E * q) + C))``, and ``round(fl(E * q))`` where
        there is no ``C``. A NaN becomes the canonical one of the output's type.
        docs/numerics/gguf.md has ``q``, ``E`` and ``C`` of every type.

    Dtypes:
        input uint8, the bytes of the blocks; output float16, bfloat16, float32.

    Shapes:
        ``shape`` is that of ``output``: rank 1 to 8, any extents, 0 included, but the last one is a
        multiple of the elements in a block. ``input`` has the same axes before the last, which is
        that of the bytes: so many for each block. A file lists its axes the other way round.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: an element depends on its own block alone.

    Attributes:
        shape: Shape of ``output``. Extents before the last may be a ``Dim``.
        type: What the blocks are.
        output_dtype: Element type of ``output``.

    Raises:
        DescriptorError: A last axis that is no whole number of blocks, a shape without axes, or a
            type that is not listed.

    Source:
        ggml's ``dequantize_row`` functions, and the ``dequantize`` of the Python package ``gguf``.
    """

    operator: ClassVar[str] = "gguf_dequantize"

    shape: Shape
    type: GgufType
    output_dtype: DTypeField


@args_class
class GgufDequantizeArgs:
    """Operands of :class:`GgufDequantizeDescriptor`.

    Attributes:
        input: The bytes of the blocks, at any address; any outer strides, innermost stride 1.
        output: Where the numbers go; likewise.
    """

    input: Tensor
    output: Tensor


class GgufDequantizePlan(Plan):
    """A plan for :class:`GgufDequantizeDescriptor`."""

    __slots__ = ()


register(GgufDequantizeDescriptor, GgufDequantizeArgs, GgufDequantizePlan)
