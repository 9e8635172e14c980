"""The classes of `fill`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class FillDescriptor(Descriptor):
    """Store one number in every element.

    When to use:
        State that has to begin somewhere, and numbers that are only known on the device: ``value``
        may lie in memory, so that a captured graph fills with another one at each replay.

    Formula:
        ``output[...] = value``. Floats: ``value`` is float64 and is rounded once, to nearest even;
        beyond the largest number it becomes infinite, in fp8 that number. A NaN is stored in its
        canonical form. Integers: ``value`` is int64 and is stored modulo 2^bits.
        docs/numerics/memory.md holds the contract.

    Dtypes:
        float16, bfloat16, float32, float64, int8, uint8, int32, int64, float8_e4m3fn, float8_e5m2.
        4-bit codes are filled as the uint8 that two of them share.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``value`` is one number.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``output``.
        output_dtype: Its element type.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        bitsandbytes ``fill``, of float32 and uint8.
    """

    operator: ClassVar[str] = "fill"

    shape: Shape
    output_dtype: DTypeField


@args_class
class FillArgs:
    """Operands of :class:`FillDescriptor`.

    Attributes:
        output: Overwritten and never read; any outer strides, innermost stride 1.
            ``plan.empty_outputs`` allocates one.
        value: The number: float64, or int64 for integers.
    """

    output: Tensor
    value: Scalar


class FillPlan(Plan):
    """A plan for :class:`FillDescriptor`."""

    __slots__ = ()

    _written_over: ClassVar[frozenset[str]] = frozenset({"output"})


register(FillDescriptor, FillArgs, FillPlan)
