"""The classes of `arange`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class ArangeDescriptor(Descriptor):
    """Store numbers that go up, or down, by equal steps.

    When to use:
        Indices and positions, of which the first and the step may be known on the device alone.

    Formula:
        Element ``i``, counted in the logical order whatever the strides, is ``start + step * i``.
        Floats: both operations are rounded to float64, and the sum once more to the output's type,
        to nearest even; beyond the largest number it becomes infinite, in fp8 that number.
        Integers: everything is modulo 2^bits. docs/numerics/memory.md holds the contract.

    Dtypes:
        float16, bfloat16, float32, float64, int8, uint8, int32, int64, float8_e4m3fn, float8_e5m2.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``start`` and ``step`` are one number each.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: an element's value depends on its index
        in the whole tensor.

    Attributes:
        shape: Shape of ``output``.
        output_dtype: Its element type.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        bitsandbytes ``arange``, which stores ``float(i)``.
    """

    operator: ClassVar[str] = "arange"

    shape: Shape
    output_dtype: DTypeField


@args_class
class ArangeArgs:
    """Operands of :class:`ArangeDescriptor`.

    Attributes:
        output: Overwritten and never read; any outer strides, innermost stride 1.
            ``plan.empty_outputs`` allocates one.
        start: The first element: float64, or int64 for integers. None: 0.
        step: The difference of neighbouring elements: likewise. None: 1.
    """

    output: Tensor
    start: Scalar | None = None
    step: Scalar | None = None


class ArangePlan(Plan):
    """A plan for :class:`ArangeDescriptor`."""

    __slots__ = ()

    _written_over: ClassVar[frozenset[str]] = frozenset({"output"})


register(ArangeDescriptor, ArangeArgs, ArangePlan)
