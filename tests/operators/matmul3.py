"""The Python half of the private operator with three shapes."""

from __future__ import annotations

from typing import Any, ClassVar

from planq._constructors import args_class, descriptor_class
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class Matmul3Descriptor(Descriptor):
    """Multiply (m, k) by the transpose of (n, k), in float32."""

    operator: ClassVar[str] = "matmul3"

    a_shape: Any
    b_shape: Any
    output_shape: Any


@args_class
class Matmul3Args:
    """Operands of :class:`Matmul3Descriptor`."""

    a: Any
    b: Any
    output: Any


class Matmul3Plan(Plan):
    """A plan for :class:`Matmul3Descriptor`."""

    __slots__ = ()


register(Matmul3Descriptor, Matmul3Args, Matmul3Plan)
