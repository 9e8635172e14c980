"""The classes of `dequantize_backward`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class DequantizeBackwardDescriptor(Descriptor):
    """The gradient of :class:`DequantizeDescriptor` with respect to its codes, as real numbers.

    When to use:
        Training through a dequantizer.

    Formula:
        ``dq = round(fl(dy * s))``; a NaN result is canonical.

    Dtypes:
        Gradients and scale float16, bfloat16, float32, float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``scale`` has the scope's parameter shape.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of both gradients.
        output_dtype: Element type of both; the forward's output.
        scope: Which elements share a scale; any but ``pair()``.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 gradients.

    Raises:
        DescriptorError: An axis outside of the shape, ``block()`` for a tensor of one axis,
            ``pair()``.

    Source:
        baracuda ``dequantize_per_*_backward``.
    """

    operator: ClassVar[str] = "dequantize_backward"

    shape: Shape
    output_dtype: DTypeField
    scope: Scope = Scope.tensor()
    scale_dtype: DTypeField = None


@args_class
class DequantizeBackwardArgs:
    """Operands of :class:`DequantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the values; any outer strides, innermost stride 1.
        grad_input: Where the gradient of the codes goes; may be exactly ``grad_output``.
        scale: The forward's scales.
    """

    grad_output: Tensor
    grad_input: Tensor
    scale: Tensor


class DequantizeBackwardPlan(Plan):
    """A plan for :class:`DequantizeBackwardDescriptor`."""

    __slots__ = ()


register(DequantizeBackwardDescriptor, DequantizeBackwardArgs, DequantizeBackwardPlan)
