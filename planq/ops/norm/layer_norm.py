"""The classes of `layer_norm`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NibbleOrder, NonFinite, Quotient
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LayerNormDescriptor(Descriptor):
    """Bring rows to a mean of 0 and a deviation of 1, and weight and shift their columns.

    When to use:
        Norms of transformers that subtract the mean. With ``residual_dtype`` the addition before
        the norm is part of it, and its result is kept.

    Formula:
        ``x`` is ``input`` in float32. With a residual, ``x`` is ``input + residual``, rounded to
        float32 and then to the residual's type, and is stored in ``residual``. For each row of H
        elements, every operation rounded to float32::

            d = x - sum(x) / H
            r = rsqrt(sum(d * d) / H + eps)
            y = fma(d * r, weight + weight_offset, bias)

        ``rsqrt`` is correctly rounded. ``sum`` adds neighbours in pairs, then pairs of sums.
        ``eps`` is rounded to float32. Without a bias, ``y`` is the product. ``output`` is ``y``,
        rounded once to its type; a NaN becomes the canonical one. docs/numerics/norm.md holds the
        contract.

        With an ``output_dtype`` of codes the results are rounded to ``norm_dtype``, as without, and
        then quantized: the bits are those of this operator with ``output_dtype`` = ``norm_dtype``
        and of ``dynamic_range_quantize`` behind it or, with ``scale_given``, of ``quantize``.

    Dtypes:
        float16, bfloat16, float32, each tensor any of these.
        Codes: int8, uint8, int4, uint4 (two a byte along the last axis), float8_e4m3fn,
        float8_e5m2, with MX and NVFP4 float4_e2m1fn; scales as of ``dynamic_range_quantize``.

    Shapes:
        Rank 1 to 8; the last axis has H elements, 1 to 65536; the others any extents, 0 included.
        ``weight`` and ``bias`` are ``(H,)``, other tensors have the shape of the input.

    Workspace:
        None without codes. With codes, a kernel of parts, as the host has it, holds the floating
        results there; ``plan.workspace_size()`` says. On CUDA, those of float16 and bfloat16 that
        are not rounded to another ``norm_dtype`` need none for most codes.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant. A NaN makes its row NaN, and no other.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``; None: the input's.
        residual_dtype: Element type of ``residual``; None: there is none.
        weight_offset: What is added to the weights, rounded to float32: 1 where a checkpoint stores
            weights less 1.
        bias_dtype: Element type of ``bias``; None: there is none.
        norm_dtype: With codes: the type that results are rounded to first; None: the input's.
        also_output: With codes: the results before they become codes are ``floating_output``.
        scale_given: With codes: ``scale`` and ``zero_point`` are inputs, as of ``quantize``.
        scope: With codes: which of them share a scale: ``Scope.token()`` or groups along the last
            axis; where scales are given, any that ``quantize`` takes.
        mode: This and all below: what ``dynamic_range_quantize`` has under the name and,
            where scales are given, ``quantize``, with the same defaults.
        q_min: Lowest code.
        q_max: Highest code.
        scale_dtype: Element type of ``scale``.
        quotient: How a result is divided by its scale.
        nonfinite: What results that are no numbers become.
        include_zero: Asymmetric and measured only: the range always holds 0.
        nibble_order: 4-bit only: which nibble the first of two codes takes.
        convention: Whose formulas make scales and codes: PLANQ, COMPRESSED_TENSORS, MX,
            MX_ROUND_UP, NVFP4 or VLLM; where scales are given PLANQ.
        scale_ub: VLLM only: the largest magnitude of a row that makes a scale; None: any does.

    Raises:
        DescriptorError: Another dtype, a last axis of other lengths, or a ``weight_offset`` that
            float32 does not hold; fields of codes without codes, or what
            ``dynamic_range_quantize`` or ``quantize`` does not take.

    Source:
        Ba, Kiros and Hinton, Layer Normalization; torch ``layer_norm``.
    """

    operator: ClassVar[str] = "layer_norm"

    shape: Shape
    input_dtype: DTypeField
    weight_dtype: DTypeField
    output_dtype: DTypeField = None
    residual_dtype: DTypeField = None
    weight_offset: float = 0
    bias_dtype: DTypeField = None
    norm_dtype: DTypeField = None
    also_output: bool = False
    scale_given: bool = False
    scope: Scope = Scope.token()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    include_zero: bool = True
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    convention: Convention = Convention.PLANQ
    scale_ub: float | None = None


@args_class
class LayerNormArgs:
    """Operands of :class:`LayerNormDescriptor`.

    Attributes:
        input: The rows; any outer strides, innermost stride 1.
        weight: What columns are multiplied by.
        bias: What is added to columns; None without ``bias_dtype``.
        residual: What is added to the rows first, and then holds the sum; any outer strides,
            innermost stride 1; None without ``residual_dtype``.
        output: Where the results go; likewise; it may be ``input`` itself.
        scale: With codes: the scales, one per segment of ``scope``; an input where they are given.
        zero_point: Likewise, int32; None when symmetric.
        inverse_tensor_scale: NVFP4: as of ``dynamic_range_quantize``; else None.
        floating_output: With ``also_output``: the results before they become codes; any outer
            strides, innermost stride 1.
        eps: What is added to the variance.
    """

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    residual: Tensor | None = None
    output: Tensor
    scale: Tensor | None = None
    zero_point: Tensor | None = None
    inverse_tensor_scale: Tensor | None = None
    floating_output: Tensor | None = None
    eps: Scalar


class LayerNormPlan(Plan):
    """A plan for :class:`LayerNormDescriptor`."""

    __slots__ = ()


register(LayerNormDescriptor, LayerNormArgs, LayerNormPlan)
