"""The classes of `histogram_scatter_add`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class HistogramScatterAddDescriptor(Descriptor):
    """Add numbers to the bins of a histogram that two indices name, with the same bits every time.

    When to use:
        Histograms of pairs, and any scattered sum that has to be the same on every run and machine.

    Formula:
        ``bin = fl(bin + sum(sources of the bin))``, where ``bin`` is
        ``histogram[index1[i], index2[i]]`` and the sum is a tree over the sources in the order of
        ``i``, as :class:`SquareSumDescriptor` has it. Bins without sources are not touched. Pairs
        of indices that name no bin add nothing, and ``outside`` says how many they are. A NaN is
        stored in its canonical form. docs/numerics/statistics.md holds the contract.

    Dtypes:
        histogram and source float32, indices int32, outside int64.

    Shapes:
        ``histogram`` has two axes, any outer stride and innermost stride 1. ``index1``, ``index2``
        and ``source`` are ``(count,)``, ``outside`` is ``(1,)``. Extents may be 0.

    Workspace:
        About 17 bytes a source on CUDA, 36 on the host; ``plan.workspace_size()`` says.

    Guarantee:
        Every kernel is BIT_EXACT. None is batch-invariant: results depend on all rows.

    Attributes:
        shape: Shape of ``histogram``.
        count: How many sources there are.

    Raises:
        DescriptorError: ``shape`` without two axes, a negative ``count``.

    Source:
        bitsandbytes ``histogram_scatter_add_2d``, which uses the number of rows as the stride of a
        row, checks no index, and adds by float atomics.
    """

    operator: ClassVar[str] = "histogram_scatter_add"

    shape: Shape
    count: int


@args_class
class HistogramScatterAddArgs:
    """Operands of :class:`HistogramScatterAddDescriptor`.

    Attributes:
        histogram: The bins; updated in place.
        index1: The row of each source's bin.
        index2: Its column.
        source: The numbers.
        outside: How many sources have no bin.
    """

    histogram: Tensor
    index1: Tensor
    index2: Tensor
    source: Tensor
    outside: Tensor


class HistogramScatterAddPlan(Plan):
    """A plan for :class:`HistogramScatterAddDescriptor`."""

    __slots__ = ()


register(HistogramScatterAddDescriptor, HistogramScatterAddArgs, HistogramScatterAddPlan)
