"""The classes of `linear_gguf`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.gguf.vocabulary import GgufType
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class LinearGgufDescriptor(Descriptor):
    """Compute a linear layer by weights that are blocks of a GGUF file.

    When to use:
        Weights of a GGUF file, as the file has them: nothing is repacked, and memory is read for
        their bits alone. Floating activations are quantized inside, in the same plan. Layers that
        share their input quantize it once, by :class:`DynamicRangeQuantizeDescriptor`, and are
        given its codes.

    Formula:
        ``fl`` is one IEEE operation in float32, ``fma`` one fused operation. ``q``, ``E`` and ``C``
        are the code, the scale and the minimum of a weight, as :class:`GgufDequantizeDescriptor`
        has them; ``x`` are the codes of the input, ``d`` the scales of each 32 of them. Sub-blocks
        are 16 neighbours in ``q2_k``, ``q3_k``, ``q6_k``, ``nvfp4``, ``iq2_xs``, ``iq2_s`` and
        ``iq1_m``, else 32.

        ``I = sum of q * x`` over a sub-block, ``u = fl(d * fl(sum of x))``, exact sums. A span is
        256 neighbours of a row, or those that are left; its sum begins at ``a = +0``, and for each
        of its sub-blocks ``a = fma(fl(E * d), fl(I), a)``; where there are minima, then
        ``a = fma(C, u, a)``. ``t = +0``; for each span ``t = fl(t + a)``; with a bias
        ``t = fl(t + bias[n])``; with a residual ``t = fl(t + residual[m, n])``;
        ``output = round(t)``. A NaN becomes the canonical one of the output's type.

        Floating input: ``x`` and ``d`` are those of ``dynamic_range_quantize`` into int8, under
        ``group(32)``, with ``Quotient.RATIO`` and scales of float32.

    Dtypes:
        input float16, bfloat16, float32, or int8 codes with ``input_scale``, which is float32;
        weight uint8, the bytes of the blocks; output float16, bfloat16, float32; bias and residual
        float16, bfloat16, float32, float64.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included, but k is a multiple of the elements in a block. ``weight`` has ``n``
        rows of bytes: so many for each block. ``output`` and ``residual`` have ``(..., m, n)``;
        ``input_scale`` ``(..., m, k / 32)``; ``bias`` ``(n,)``.

    Workspace:
        Floating input: its codes and scales. On the host also the codes in the order in which they
        are read, with what sums need to know of them.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: integer sums do not depend on their order,
        and the rest is a fixed sequence of IEEE operations.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Shape of the weights as numbers.
        type: What the blocks are. ``q8_1`` and ``q8_k`` are in no file.
        input_dtype: Element type of ``input``; int8: it is codes.
        output_dtype: Element type of ``output``.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, a k that is no whole number of blocks,
            another dtype, or a type that no file has.

    Source:
        ggml's ``mul_mat`` of quantized weights, with one order of sums for all processors.
    """

    operator: ClassVar[str] = "linear_gguf"

    input_shape: Shape
    weight_shape: Shape
    type: GgufType
    input_dtype: DTypeField
    output_dtype: DTypeField
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class LinearGgufArgs:
    """Operands of :class:`LinearGgufDescriptor`.

    Attributes:
        input: The activations, or their codes; any outer strides, innermost stride 1.
        weight: The bytes of the blocks, row by row, at any address; likewise.
        output: Where the results go; likewise.
        input_scale: The scales of the codes, one for each 32; None with floating ``input``.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    input_scale: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None


class LinearGgufPlan(Plan):
    """A plan for :class:`LinearGgufDescriptor`."""

    __slots__ = ()


register(LinearGgufDescriptor, LinearGgufArgs, LinearGgufPlan)
