"""The Python half of the private operator with a field of every kind."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, Vocabulary
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


class Shade(Vocabulary):
    """An enumeration that the operator alone has."""

    LIGHT = "light"
    DARK = "dark"


@descriptor_class
class EveryKindDescriptor(Descriptor):
    """Hold a field of every kind."""

    operator: ClassVar[str] = "every_kind"

    shape: Shape
    other: Shape
    shapes: tuple[tuple[int, ...], ...] = ()
    integers: tuple[int, ...] = ()
    modes: tuple[Mode, ...] = ()
    input_dtype: DTypeField
    other_dtype: DTypeField = "int4"
    optional_dtype: DTypeField = None
    scope: Scope = Scope.token()
    mode: Mode = Mode.ASYMMETRIC
    optional_enumeration: EnumerationField = None
    number: float = 0.5
    optional_number: float | None = None
    flag: bool = True
    integer: int = -3
    count: int | None = None


@args_class
class EveryKindArgs:
    """The operands of :class:`EveryKindDescriptor`."""

    input: Tensor
    bytes: Tensor | None = None


class EveryKindPlan(Plan):
    """A plan for :class:`EveryKindDescriptor`: there is none."""

    __slots__ = ()


register(EveryKindDescriptor, EveryKindArgs, EveryKindPlan)
