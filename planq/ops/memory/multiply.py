"""The classes of `multiply`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MultiplyDescriptor(Descriptor):
    """Multiply two tensors element by element.

    When to use:
        Masks and factors in a sequence of planq's own launches, in place if wanted.

    Formula:
        ``output = input * other``. Floats: the product is rounded to the compute type (float64 for
        float64, else float32) and then to the elements' type, to nearest even. Beyond the largest
        number it becomes infinite; in fp8 it becomes the largest number, also where it is infinite.
        A NaN is stored in its canonical form. Integers: the product is modulo 2^bits.
        docs/numerics/memory.md holds the contract.

    Dtypes:
        float16, bfloat16, float32, float64, int8, uint8, int32, int64, float8_e4m3fn, float8_e5m2.

    Shapes:
        Rank 1 to 8, any extents, 0 included; the three are alike. Broadcast by strides of 0.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of all operands.
        input_dtype: Their element type.

    Raises:
        DescriptorError: A type that is not listed.

    Source:
        bitsandbytes ``_mul``, of float32.
    """

    operator: ClassVar[str] = "multiply"

    shape: Shape
    input_dtype: DTypeField


@args_class
class MultiplyArgs:
    """Operands of :class:`MultiplyDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        other: What they are multiplied by; likewise.
        output: The products; it may be ``input`` itself.
    """

    input: Tensor
    other: Tensor
    output: Tensor


class MultiplyPlan(Plan):
    """A plan for :class:`MultiplyDescriptor`."""

    __slots__ = ()


register(MultiplyDescriptor, MultiplyArgs, MultiplyPlan)
