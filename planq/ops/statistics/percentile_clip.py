"""The classes of `percentile_clip`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class PercentileClipDescriptor(Descriptor):
    """Find the factor that takes a gradient's norm down to a percentile of its last 100 norms.

    When to use:
        Clipping without a bound to tune. ``gradient_scale`` stays on the device, where an
        optimizer's step reads it. So nothing waits, and a captured graph clips at every replay.

    Formula:
        With ``s = sum(fl(x * x))`` in the order of :class:`SquareSumDescriptor`: a finite ``s``
        goes to ``history[step mod 100]``, at step 1 to every entry. Then
        ``clip_value = sqrt(sorted(history)[percentile])``, ``norm = sqrt(s)``, and
        ``gradient_scale = clip_value / norm`` where ``norm > clip_value``, else 1.

        A NaN makes the norm NaN and the factor 1, an infinity makes the factor 0; neither is
        remembered. NaN in the history are above everything. docs/numerics/statistics.md holds the
        contract.

    Dtypes:
        input float16, bfloat16, float32, float64; history and outputs float32, of float64 input
        float64; step int64.

    Shapes:
        input of rank 1 to 8, any extents, 0 included. ``history`` is ``(100,)``, outputs are
        ``(1,)``.

    Workspace:
        At most about a number for every 1024 elements; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: results depend on all rows.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        percentile: How many of the 100 norms are below the bound, 0 to 99.

    Raises:
        DescriptorError: ``shape``, ``input_dtype`` or ``percentile`` outside of the above.

    Source:
        bitsandbytes ``percentile_clipping``, which adds sums of blocks by float atomics and sorts
        on the host.
    """

    operator: ClassVar[str] = "percentile_clip"

    shape: Shape
    input_dtype: DTypeField
    percentile: int = 5


@args_class
class PercentileClipArgs:
    """Operands of :class:`PercentileClipDescriptor`.

    Attributes:
        input: The gradient; any outer strides, innermost stride 1.
        history: Squared norms of the last 100 steps; updated in place.
        step: The number of this step, of which the first is 1.
        gradient_scale: What the gradient is to be multiplied by.
        norm: Its norm.
        clip_value: The percentile of the remembered norms.
    """

    input: Tensor
    history: Tensor
    step: Scalar
    gradient_scale: Tensor
    norm: Tensor
    clip_value: Tensor


class PercentileClipPlan(Plan):
    """A plan for :class:`PercentileClipDescriptor`."""

    __slots__ = ()


register(PercentileClipDescriptor, PercentileClipArgs, PercentileClipPlan)
