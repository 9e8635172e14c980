"""The classes of `square_sum`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class SquareSumDescriptor(Descriptor):
    """Sum the squares of all elements, in an order that no grid and no backend changes.

    When to use:
        Gradient norms over several tensors: square sums add up, and the root comes last. Of one
        tensor alone, :class:`NormDescriptor` takes the root too.

    Formula:
        ``output[0] = sum(fl(x * x))``, each operation rounded once to the compute type C: float32,
        of float64 input float64. The sum is a tree: neighbouring elements are added in pairs, then
        pairs of sums and so on, as if +0 filled the elements up to a power of two. Elements count
        in their logical order, whatever the strides.

        A NaN, or a sum of infinities with one, gives the canonical NaN; a square beyond C's range
        is infinite. The sum of no elements is 0. docs/numerics/statistics.md holds the contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output float32, of float64 input float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` is ``(1,)``.

    Workspace:
        At most about a number for every 1024 elements; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: results depend on all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.

    Raises:
        DescriptorError: ``shape`` or ``input_dtype`` outside of the above.

    Source:
        What bitsandbytes' ``percentile_clipping`` and its optimizers' ``unorm`` measure, which add
        sums of blocks by float atomics, in no fixed order.
    """

    operator: ClassVar[str] = "square_sum"

    shape: Shape
    input_dtype: DTypeField


@args_class
class SquareSumArgs:
    """Operands of :class:`SquareSumDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: Where the sum goes.
    """

    input: Tensor
    output: Tensor


class SquareSumPlan(Plan):
    """A plan for :class:`SquareSumDescriptor`."""

    __slots__ = ()


register(SquareSumDescriptor, SquareSumArgs, SquareSumPlan)
