"""The classes of `activation`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NibbleOrder, NonFinite, Quotient
from planq.ops.activation.vocabulary import GateLayout
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class ActivationDescriptor(Descriptor):
    """Compute a function of each element, alone or as the gate of another element.

    When to use:
        Between the products of a feed-forward layer: SwiGLU, GeGLU and ReGLU of a packed product or
        of two, with the same bits on every machine.

    Formula:
        ``output = rn(f(a))``, and gated ``output = rn(fl(f(a) * b))``, where ``a`` is an element of
        the gate and ``b`` the one of the up side. Both are widened to float32, which is exact, and
        ``f`` is computed in float32 as docs/numerics/functions.md writes it. The product is rounded
        once to float32, the result once to the output's type, to nearest even; beyond its largest
        number it becomes infinite. A NaN becomes the canonical one. docs/numerics/activation.md
        holds the contract.

        ========================  ==============================================================
        ``function``              f(x)
        ========================  ==============================================================
        ``SILU``                  x / (1 + e^-x)
        ``GELU_TANH``             x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
        ``GELU_ERF``              x (1 + erf(x / sqrt(2))) / 2
        ``SIGMOID``               1 / (1 + e^-x)
        ``RELU``                  x above 0, NaN of a NaN, else +0
        ``RELU_SQUARED``          fl(r * r), r = RELU(x)
        ========================  ==============================================================

        With an ``output_dtype`` of codes the results are rounded to ``norm_dtype``, as without, and
        then quantized: the bits are those of this operator with ``output_dtype`` = ``norm_dtype``
        and of ``dynamic_range_quantize`` behind it or, with ``scale_given``, of ``quantize``.

    Dtypes:
        input and output float16, bfloat16, float32, in any combination; up as the input.
        Codes: int8, uint8, int4, uint4 (two a byte along the last axis), float8_e4m3fn,
        float8_e5m2, with MX and NVFP4 float4_e2m1fn; scales as of ``dynamic_range_quantize``.

    Shapes:
        ``shape`` is that of one side, ``(..., H)``, of rank 1 to 8 and any extents, 0 included.
        ``output`` has it, and so have ``input`` and ``up`` without a gate and with SEPARATE. With
        other layouts ``input`` is ``(..., 2H)``: of HALVES the gate is ``input[..., :H]``, of
        HALVES_UP_FIRST ``input[..., H:]``, of INTERLEAVED ``input[..., ::2]``.

    Workspace:
        None without codes. With codes, a kernel of parts, as the host has it, holds the floating
        results there; ``plan.workspace_size()`` says. On CUDA, those of float16 and bfloat16 that
        are not rounded to another ``norm_dtype`` need none for most codes.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of one side and of the output.
        function: The function.
        gated: Whether there is an up side, which the function of the gate multiplies.
        layout: Where gate and up side are; HALVES without a gate.
        input_dtype: Element type of ``input`` and ``up``.
        output_dtype: Element type of ``output``; that of the input by default.
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
        DescriptorError: A type that is not listed, or a layout without a gate; fields of codes
            without codes, or what ``dynamic_range_quantize`` or ``quantize`` does not take.

    Source:
        vLLM ``silu_and_mul``, ``mul_and_silu``, ``gelu_and_mul``, ``gelu_tanh_and_mul``,
        ``swigluoai_and_mul`` without its clamp; torch ``silu``, ``gelu``, ``relu``.
    """

    operator: ClassVar[str] = "activation"

    shape: Shape
    function: EnumerationField
    gated: bool = False
    layout: EnumerationField = GateLayout.HALVES
    input_dtype: DTypeField
    output_dtype: DTypeField = None
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
class ActivationArgs:
    """Operands of :class:`ActivationDescriptor`.

    Attributes:
        input: The elements, or the gate, or both sides; any outer strides, innermost stride 1.
        up: The up side; only with SEPARATE; likewise.
        output: The results; likewise. It overlaps no input.
        scale: With codes: the scales, one per segment of ``scope``; an input where they are given.
        zero_point: Likewise, int32; None when symmetric.
        inverse_tensor_scale: NVFP4: as of ``dynamic_range_quantize``; else None.
        floating_output: With ``also_output``: the results before they become codes; any outer
            strides, innermost stride 1.
    """

    input: Tensor
    up: Tensor | None = None
    output: Tensor
    scale: Tensor | None = None
    zero_point: Tensor | None = None
    inverse_tensor_scale: Tensor | None = None
    floating_output: Tensor | None = None


class ActivationPlan(Plan):
    """A plan for :class:`ActivationDescriptor`."""

    __slots__ = ()


register(ActivationDescriptor, ActivationArgs, ActivationPlan)
