"""The Python half of the tests' private operator: everything that an operator adds to a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from planq.descriptor import Descriptor
from planq.dtypes import DTypeLike
from planq.plan import Plan
from planq.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class NoopDescriptor(Descriptor):
    """Take four operands and do nothing."""

    operator: ClassVar[str] = "noop"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike


@dataclass(slots=True, kw_only=True)
class NoopArgs:
    """Operands of :class:`NoopDescriptor`."""

    input: Any
    output: Any
    scale: Any
    zero_point: Any


class NoopPlan(Plan):
    """A plan for :class:`NoopDescriptor`."""

    __slots__ = ()


register(NoopDescriptor, NoopArgs, NoopPlan)
