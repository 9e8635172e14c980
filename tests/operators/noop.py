"""The Python half of the tests' private operator: everything that an operator adds to a family."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class NoopDescriptor(Descriptor):
    """Take four operands and do nothing."""

    operator: ClassVar[str] = "noop"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField


@args_class
class NoopArgs:
    """Operands of :class:`NoopDescriptor`."""

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor


class NoopPlan(Plan):
    """A plan for :class:`NoopDescriptor`."""

    __slots__ = ()


register(NoopDescriptor, NoopArgs, NoopPlan)
