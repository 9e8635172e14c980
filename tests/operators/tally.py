"""The Python half of the private operator with truth values and rows that may be left out."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class TallyDescriptor(Descriptor):
    """Count the elements that are below zero, or those that are not."""

    operator: ClassVar[str] = "tally"

    shape: Any


@args_class
class TallyArgs:
    """Operands of :class:`TallyDescriptor`."""

    rows: Any = None
    copy: Any = None
    negative: Any
    count: Any
    size: Any
    found: Any


class TallyPlan(Plan):
    """A plan for :class:`TallyDescriptor`."""

    __slots__ = ()


register(TallyDescriptor, TallyArgs, TallyPlan)
