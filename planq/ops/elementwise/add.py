"""The classes of `add`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class AddDescriptor(Descriptor):
    """Add two tensors element by element, the first of them times a number.

    When to use:
        Residuals, sums of the parts of a layer, and scaled updates, in place if wanted. A number
        that only the device knows is ``alpha`` in memory.

    Formula:
        ``output = rn(fl(fl(input * alpha) + other))``. Elements are widened to float32, which is
        exact. ``alpha`` is float64 and is rounded to float32 first. The product, the sum and the
        output are each rounded once, to nearest even: product and sum to float32, the last to the
        output's type, beyond whose largest number it becomes infinite. A NaN becomes the canonical
        one. docs/numerics/elementwise.md holds the contract.

    Dtypes:
        input, other and output float16, bfloat16, float32, in any combination.

    Shapes:
        Rank 1 to 8, any extents, 0 included; the three are alike. Broadcast by strides of 0.
        ``alpha`` is one number.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of all operands.
        input_dtype: Element type of ``input``.
        other_dtype: Element type of ``other``; that of the input by default.
        output_dtype: Element type of ``output``; that of the input by default.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        torch ``add``, whose ``alpha`` multiplies the other operand.
    """

    operator: ClassVar[str] = "add"

    shape: Shape
    input_dtype: DTypeField
    other_dtype: DTypeField = None
    output_dtype: DTypeField = None


@args_class
class AddArgs:
    """Operands of :class:`AddDescriptor`.

    Attributes:
        input: The first terms; any outer strides, innermost stride 1.
        other: The second terms; likewise.
        output: The sums; likewise. It may be ``input`` itself where both have one type.
        alpha: What the first terms are multiplied by: a number, or one in memory. None: 1.
    """

    input: Tensor
    other: Tensor
    output: Tensor
    alpha: Scalar | None = None


class AddPlan(Plan):
    """A plan for :class:`AddDescriptor`."""

    __slots__ = ()


register(AddDescriptor, AddArgs, AddPlan)
