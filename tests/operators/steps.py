"""The Python half of the private operator of several launches."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class StepsDescriptor(Descriptor):
    """Double and add one, in float32."""

    operator: ClassVar[str] = "steps"

    shape: Any


@args_class
class StepsArgs:
    """Operands of :class:`StepsDescriptor`."""

    input: Any
    output: Any
    way: Any


class StepsPlan(Plan):
    """A plan for :class:`StepsDescriptor`."""

    __slots__ = ()


register(StepsDescriptor, StepsArgs, StepsPlan)
