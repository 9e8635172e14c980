"""The classes of `quantize_backward`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, Quotient
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class QuantizeBackwardDescriptor(Descriptor):
    """The straight-through gradient of :class:`QuantizeDescriptor`.

    When to use:
        Training through a quantizer whose codes are taken as real numbers.

    Formula:
        ``dx = round(g)`` where the element's code before clamping, ``rne(t) + z``, lies in
        ``[q_min, q_max]``, both ends included; +0 elsewhere, and where ``t`` is NaN or infinite.
        ``t`` is the forward's quotient, recomputed from the saved input, and ``g`` is ``dy``
        divided by the scale in the same way: ``fl(dy / s)`` (DIVIDE) and so on. fp8 compares ``t``
        itself. A NaN result is canonical.

    Dtypes:
        Gradients and input float16, bfloat16, float32, float64; the rest as in the forward.

    Shapes:
        Those of the forward; gradients have the input's shape.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input`` and of both gradients.
        input_dtype: Element type of the three.
        output_dtype: Element type of the forward's codes.
        scope: The forward's; so are the fields that follow.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code.
        q_max: Highest code.
        scale_dtype: Element type of ``scale``.
        zero_point_dtype: Element type of ``zero_point``; 4-bit ones have their first in the low
            nibble.
        quotient: How an element is divided by its scale.

    Raises:
        DescriptorError: As the forward.

    Source:
        baracuda ``quantize_per_tensor_backward`` and its like, with one mask for all of them.
    """

    operator: ClassVar[str] = "quantize_backward"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    zero_point_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE


@args_class
class QuantizeBackwardArgs:
    """Operands of :class:`QuantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the codes; any outer strides, innermost stride 1.
        input: What the forward quantized; likewise.
        grad_input: Where the gradient of the input goes; may be exactly ``grad_output``.
        scale: The forward's scales.
        zero_point: The forward's zero points; None when symmetric.
    """

    grad_output: Tensor
    input: Tensor
    grad_input: Tensor
    scale: Tensor
    zero_point: Tensor | None = None


class QuantizeBackwardPlan(Plan):
    """A plan for :class:`QuantizeBackwardDescriptor`."""

    __slots__ = ()


register(QuantizeBackwardDescriptor, QuantizeBackwardArgs, QuantizeBackwardPlan)
