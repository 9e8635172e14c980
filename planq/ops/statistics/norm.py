"""The classes of `norm`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.statistics.vocabulary import NormOrder
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class NormDescriptor(Descriptor):
    """Measure the 1-, 2- or infinity-norm of all elements as one vector.

    When to use:
        Clipping and trust ratios without waiting for the device; as a check for gradients that are
        not finite. Of several tensors together, add up :class:`SquareSumDescriptor`.

    Formula:
        ONE: ``output[0] = sum(|x|)``. TWO: ``output[0] = sqrt(sum(fl(x * x)))``. INFINITY:
        ``output[0] = max(|x|)``, exact. Each operation is rounded once to the compute type C:
        float32, of float64 input float64. The sum is a tree: neighbouring elements are added in
        pairs, then pairs of sums and so on, as if +0 filled the elements up to a power of two.
        Elements count in their logical order, whatever the strides.

        A NaN gives the canonical NaN for every order. Squares are not scaled: one beyond C's range
        makes the norm infinite, as an element beyond the root of it does. The norm of no elements
        is 0. docs/numerics/statistics.md holds the contract.

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
        p: Which norm.

    Raises:
        DescriptorError: ``shape`` or ``input_dtype`` outside of the above.

    Source:
        ``torch.linalg.vector_norm``, whose order of sums depends on the device, and which fuses
        squares into sums in float32.
    """

    operator: ClassVar[str] = "norm"

    shape: Shape
    input_dtype: DTypeField
    p: NormOrder = NormOrder.TWO


@args_class
class NormArgs:
    """Operands of :class:`NormDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: Where the norm goes.
    """

    input: Tensor
    output: Tensor


class NormPlan(Plan):
    """A plan for :class:`NormDescriptor`."""

    __slots__ = ()


register(NormDescriptor, NormArgs, NormPlan)
