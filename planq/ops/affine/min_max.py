"""The classes of `min_max`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, NonFinite
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class MinMaxDescriptor(Descriptor):
    """Measure the range of every segment, and widen ranges from before by it.

    When to use:
        Calibration: run over batch after batch with ``update``, then make parameters of the ranges
        by :func:`planq.qparams`. Also wherever a range is wanted without codes.

    Formula:
        Symmetric: ``absmax = max|x|``. Asymmetric: ``minimum = min x``, ``maximum = max x``. A
        segment without elements has 0, and -0 is stored as +0. With ``update`` each result is the
        larger (``minimum``: the smaller) of the segment's own and the previous one, which a segment
        without elements keeps.

        PROPAGATE: infinities are numbers like others; a NaN among the elements makes every result
        of the segment NaN, and a previous NaN stays. SATURATE: elements that are NaN or infinite
        are left out, and a previous NaN counts as none; a previous infinity is a number.
        docs/numerics/affine.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; results float32, of float64 input float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. Results have the scope's parameter shape (see
        :class:`planq.Scope`).

    Workspace:
        ``plan.workspace_size()`` says; kernels that need none take every descriptor.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a segment of
        ``scope``.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        scope: Which elements share a range.
        mode: SYMMETRIC measures ``absmax``, ASYMMETRIC ``minimum`` and ``maximum``.
        nonfinite: What NaN and infinities do to a range.
        update: Whether there are ``previous_`` operands; a result may be written over its own.

    Raises:
        DescriptorError: An axis outside of the shape, the scope ``pair``.

    Source:
        torch ``MinMaxObserver``, ``PerChannelMinMaxObserver``.
    """

    operator: ClassVar[str] = "min_max"

    shape: Shape
    input_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    nonfinite: NonFinite = NonFinite.PROPAGATE
    update: bool = False


@args_class
class MinMaxArgs:
    """Operands of :class:`MinMaxDescriptor`.

    Attributes:
        input: What to measure; any outer strides, innermost stride 1.
        absmax: Where the largest magnitudes go, one per segment; symmetric only.
        minimum: Where the smallest elements go, one per segment; asymmetric only.
        maximum: Where the largest elements go, one per segment; asymmetric only.
        previous_absmax: What ``absmax`` was before; ``update`` only. May be ``absmax`` itself.
        previous_minimum: What ``minimum`` was before; likewise.
        previous_maximum: What ``maximum`` was before; likewise.
    """

    input: Tensor
    absmax: Tensor | None = None
    minimum: Tensor | None = None
    maximum: Tensor | None = None
    previous_absmax: Tensor | None = None
    previous_minimum: Tensor | None = None
    previous_maximum: Tensor | None = None


class MinMaxPlan(Plan):
    """A plan for :class:`MinMaxDescriptor`."""

    __slots__ = ()


register(MinMaxDescriptor, MinMaxArgs, MinMaxPlan)
