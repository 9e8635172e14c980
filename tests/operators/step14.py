"""The Python half of the private operator with fourteen operands."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class Step14Descriptor(Descriptor):
    """Update parameters and what an optimizer keeps of their gradients, in place."""

    operator: ClassVar[str] = "step14"

    shape: Any
    amsgrad: bool = False


@args_class
class Step14Args:
    """Operands of :class:`Step14Descriptor`."""

    parameter: Any
    gradient: Any
    average: Any
    square: Any
    largest: Any = None
    copy: Any = None
    rate: Any
    beta1: Any
    beta2: Any
    epsilon: Any
    decay: Any = None
    gradient_scale: Any = None
    skip: Any = None
    step: Any


class Step14Plan(Plan):
    """A plan for :class:`Step14Descriptor`."""

    __slots__ = ()


register(Step14Descriptor, Step14Args, Step14Plan)
