"""The classes of `estimate_quantiles`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import NonFinite
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class EstimateQuantilesDescriptor(Descriptor):
    """Find evenly spaced quantiles of all elements: exact order statistics, without sorting.

    When to use:
        Codebooks that follow the distribution of a tensor, as bitsandbytes' quantile maps; and
        wherever percentiles of large tensors are wanted on the stream.

    Formula:
        With ``x`` the elements in ascending order, ``n`` of them,
        ``output[j] = x[round((tail + j * (1 - 2 * tail) / (quantiles - 1)) * (n - 1))]``:
        operations in float64 from left to right, halves rounded up. Each output is the value of an
        element, exact for every ``n``: the error bound is zero. -0 is stored as +0.

        Infinities are numbers like others. A NaN makes every output NaN (PROPAGATE), or does not
        count as an element (SATURATE). Without elements that count, every output is NaN.
        docs/numerics/statistics.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output float32, of float64 input float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` is ``(quantiles,)``.

    Workspace:
        The same for every tensor of a type, about 130 KiB; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: results depend on all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        quantiles: How many, 2 to 256.
        tail: The share of elements below the first quantile and above the last one, at least 0 and
            below 0.5. Default: ``1 / (2 * quantiles)``, the middles of as many equal shares.
        nonfinite: What a NaN does.

    Raises:
        DescriptorError: ``quantiles`` outside of 2 to 256, ``tail`` outside of [0, 0.5).

    Source:
        bitsandbytes ``estimate_quantiles``, whose ``offset`` is ``tail``. It averages the quantiles
        of chunks of 4096 elements in the input's type and in no fixed order, skips an incomplete
        last chunk, and needs at least 256 elements. Here every element counts once.
    """

    operator: ClassVar[str] = "estimate_quantiles"

    shape: Shape
    input_dtype: DTypeField
    quantiles: int = 256
    tail: float | None = None
    nonfinite: NonFinite = NonFinite.PROPAGATE


@args_class
class EstimateQuantilesArgs:
    """Operands of :class:`EstimateQuantilesDescriptor`.

    Attributes:
        input: The elements; any outer strides, innermost stride 1.
        output: Where the quantiles go, in ascending order.
    """

    input: Tensor
    output: Tensor


class EstimateQuantilesPlan(Plan):
    """A plan for :class:`EstimateQuantilesDescriptor`."""

    __slots__ = ()


register(EstimateQuantilesDescriptor, EstimateQuantilesArgs, EstimateQuantilesPlan)
