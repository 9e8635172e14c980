"""The classes of `fake_quantize_backward`."""

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
class FakeQuantizeBackwardDescriptor(Descriptor):
    """The straight-through gradient of :class:`FakeQuantizeDescriptor`.

    When to use:
        Quantization-aware training. After a dynamic forward, pass the scale and zero point that it
        wrote.

    Formula:
        ``dx = dy``, bit for bit, where the element's code before clamping, ``rne(t) + z``, lies in
        ``[q_min, q_max]``, both ends included; +0 elsewhere, and where ``t`` is NaN or infinite.
        ``t`` is the forward's quotient, recomputed from the saved input.

    Dtypes:
        Gradients, input and scale float16, bfloat16, float32, float64; zero_point int32, int8 or
        uint8.

    Shapes:
        Those of the forward; gradients have the input's shape.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input`` and of both gradients.
        input_dtype: Element type of the three.
        scope: The forward's; so are the fields that follow.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code.
        q_max: Highest code.
        scale_dtype: Element type of ``scale``.
        zero_point_dtype: Element type of ``zero_point``.
        quotient: How an element is divided by its scale.

    Raises:
        DescriptorError: As the forward.

    Source:
        baracuda ``fake_quantize_backward``; torch ``fake_quantize_per_channel_affine`` under
        autograd.
    """

    operator: ClassVar[str] = "fake_quantize_backward"

    shape: Shape
    input_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    zero_point_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE


@args_class
class FakeQuantizeBackwardArgs:
    """Operands of :class:`FakeQuantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the forward's output; any outer strides, innermost stride 1.
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


class FakeQuantizeBackwardPlan(Plan):
    """A plan for :class:`FakeQuantizeBackwardDescriptor`."""

    __slots__ = ()


register(FakeQuantizeBackwardDescriptor, FakeQuantizeBackwardArgs, FakeQuantizeBackwardPlan)
