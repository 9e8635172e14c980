"""The Python half of the private operator with lists of tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class List300Descriptor(Descriptor):
    """Move each tensor of a list against its gradient."""

    operator: ClassVar[str] = "list300"

    shapes: Any


@args_class
class List300Args:
    """Operands of :class:`List300Descriptor`."""

    parameter: Any
    gradient: Any
    rate: Any
    sums: Any


class List300Plan(Plan):
    """A plan for :class:`List300Descriptor`."""

    __slots__ = ()


register(List300Descriptor, List300Args, List300Plan)
