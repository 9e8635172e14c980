"""The Python half of the private operator with constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class ThirdsDescriptor(Descriptor):
    """Divide by three, in float32."""

    operator: ClassVar[str] = "thirds"

    shape: Any


@dataclass(slots=True, kw_only=True)
class ThirdsArgs:
    """Operands of :class:`ThirdsDescriptor`."""

    input: Any
    output: Any


class ThirdsPlan(Plan):
    """A plan for :class:`ThirdsDescriptor`."""

    __slots__ = ()


register(ThirdsDescriptor, ThirdsArgs, ThirdsPlan)
