"""The Python half of the private operator with constraints."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class ThirdsDescriptor(Descriptor):
    """Divide by three, in float32."""

    operator: ClassVar[str] = "thirds"

    shape: Any


@args_class
class ThirdsArgs:
    """Operands of :class:`ThirdsDescriptor`."""

    input: Any
    output: Any


class ThirdsPlan(Plan):
    """A plan for :class:`ThirdsDescriptor`."""

    __slots__ = ()


register(ThirdsDescriptor, ThirdsArgs, ThirdsPlan)
