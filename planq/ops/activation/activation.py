"""The classes of `activation`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.activation.vocabulary import GateLayout
from planq.plan import Plan
from planq.registry import register


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

    Dtypes:
        input and output float16, bfloat16, float32, in any combination; up as the input.

    Shapes:
        ``shape`` is that of one side, ``(..., H)``, of rank 1 to 8 and any extents, 0 included.
        ``output`` has it, and so have ``input`` and ``up`` without a gate and with SEPARATE. With
        other layouts ``input`` is ``(..., 2H)``: of HALVES the gate is ``input[..., :H]``, of
        HALVES_UP_FIRST ``input[..., H:]``, of INTERLEAVED ``input[..., ::2]``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of one side and of the output.
        function: The function.
        gated: Whether there is an up side, which the function of the gate multiplies.
        layout: Where gate and up side are; HALVES without a gate.
        input_dtype: Element type of ``input`` and ``up``.
        output_dtype: Element type of ``output``; that of the input by default.

    Raises:
        DescriptorError: A type that is not listed, or a layout without a gate.

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


@args_class
class ActivationArgs:
    """Operands of :class:`ActivationDescriptor`.

    Attributes:
        input: The elements, or the gate, or both sides; any outer strides, innermost stride 1.
        up: The up side; only with SEPARATE; likewise.
        output: The results; likewise. It overlaps no input.
    """

    input: Tensor
    up: Tensor | None = None
    output: Tensor


class ActivationPlan(Plan):
    """A plan for :class:`ActivationDescriptor`."""

    __slots__ = ()


register(ActivationDescriptor, ActivationArgs, ActivationPlan)
