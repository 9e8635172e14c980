"""The classes of `linear_w8a8_dynamic`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NonFinite, Quotient
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LinearW8A8DynamicDescriptor(Descriptor):
    """Quantize activations row by row and compute a linear layer of their codes, in one plan.

    When to use:
        A layer with integer weights whose activations are still floating: one plan and one
        workspace instead of two plans and memory for codes between them. On CUDA the product's
        kernel may begin before the quantization has ended.

    Formula:
        ``codes, scale, zero_point = dynamic_range_quantize(input)`` under ``input_scope`` and
        ``input_mode``, with scales of ``scale_dtype``; ``output = linear_w8a8(codes, weight)``,
        with the sums of the codes by ``code_sum`` where the weights have zero points. These
        operators' own plans run, so the bits are theirs: see
        :class:`DynamicRangeQuantizeDescriptor`, :class:`LinearW8A8Descriptor`,
        :class:`CodeSumDescriptor`.

    Dtypes:
        input, output, scales, bias and residual float16, bfloat16, float32, float64; weight and
        ``code_dtype`` int8, uint8, int4, uint4; ``weight_zero_point`` and ``weight_sum`` int32.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``output`` and ``residual`` have ``(..., m, n)``; ``weight_scale`` and
        ``weight_zero_point`` ``(n,)`` or ``(1,)``; ``weight_sum`` and ``bias`` ``(n,)``. 4-bit
        weights: the last axis as stored is halved, rounded up.

    Workspace:
        The codes, their scales, zero points and sums, and what the kernels of the parts need.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where each row has its own scale: under
        ``token()``.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``.
        input_scope: ``token()`` or ``tensor()``: which elements of ``input`` share a scale.
        weight_scope: ``channel(0)`` or ``tensor()``: which codes of ``weight`` do.
        input_mode: ASYMMETRIC: the activations have zero points, and there is ``weight_sum``.
        weight_mode: ASYMMETRIC: there are ``weight_zero_point``.
        scale_dtype: Element type of all scales. Default: float32, float64 for float64 output.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.
        convention: The order of operations of the product: PLANQ or BARACUDA.
        quotient: How activations are divided by their scale.
        nonfinite: What becomes of a NaN or an infinity among the activations.
        code_dtype: Element type of the activations' codes. Default: int8.

    Raises:
        DescriptorError: Whatever one of the parts refuses; BITSANDBYTES, whose scales are absolute
            maxima.

    Source:
        torchao's dynamically quantized linear layers; vLLM's ``cutlass_scaled_mm`` behind
        ``scaled_int8_quant``; baracuda ``quantized_linear``.
    """

    operator: ClassVar[str] = "linear_w8a8_dynamic"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField
    weight_dtype: DTypeField = "int8"
    output_dtype: DTypeField
    input_scope: Scope = Scope.token()
    weight_scope: Scope = Scope.channel(0)
    input_mode: Mode = Mode.SYMMETRIC
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = None
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None
    convention: Convention = Convention.PLANQ
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    code_dtype: DTypeField = None


@args_class
class LinearW8A8DynamicArgs:
    """Operands of :class:`LinearW8A8DynamicDescriptor`.

    Attributes:
        input: The activations; any outer strides, innermost stride 1.
        weight: The codes of the weights; likewise.
        output: Where the results go; likewise.
        weight_scale: The scales of the columns, or of all of them.
        weight_zero_point: Their zero points; None when ``weight_mode`` is symmetric.
        weight_sum: The sums of ``weight`` over k; None when ``input_mode`` is symmetric.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor | None = None
    weight_sum: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None


class LinearW8A8DynamicPlan(Plan):
    """A plan for :class:`LinearW8A8DynamicDescriptor`."""

    __slots__ = ()


register(LinearW8A8DynamicDescriptor, LinearW8A8DynamicArgs, LinearW8A8DynamicPlan)
