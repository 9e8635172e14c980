"""Shapes of the results of fake calls, whose extents may be symbolic."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, Final

from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import Role
from planq.errors import DescriptorError
from planq.registry import native_operator
from planq.torch._rules import shape_of

# Stand-ins for symbols without a hint: divisible by nearly every group size, small or large.
_WHOLE: Final = (64, 64 * 3 * 5 * 7)


def is_symbol(extent: object) -> bool:
    """Whether an extent is symbolic."""
    return hasattr(extent, "node") and not isinstance(extent, int)


def results_of(
    descriptor: type[Descriptor], values: dict[str, Any]
) -> list[tuple[OperandSpec, tuple[Any, ...]]]:
    """The outputs of the descriptor with these fields, each with its shape, maybe symbolic.

    Raises:
        DescriptorError: A field has a value that is not allowed.
    """
    desc = _descriptor(descriptor, values)
    resolved = {item.name: getattr(desc, item.name) for item in fields(desc) if item.init}
    shapes = {name: value for name, value in values.items() if isinstance(value, tuple)}
    known = SimpleNamespace(**resolved | shapes)
    table = native_operator(descriptor.operator)["operand_table"]
    return [
        (spec, shape_of(table[name]["shape"], known))
        for name, spec in desc.operands().items()
        if spec.role is Role.OUTPUT
    ]


def _descriptor(descriptor: type[Descriptor], values: dict[str, Any]) -> Descriptor:
    """The descriptor at the extents that torch traces with.

    The defaults that it resolves do not depend on extents. Its checks of extents are repeated in
    every call.
    """

    def at(whole: int | None) -> Descriptor:
        return descriptor(
            **{
                name: tuple(_number(item, whole) for item in value)
                if isinstance(value, tuple)
                else value
                for name, value in values.items()
            }
        )

    given = (item for value in values.values() if isinstance(value, tuple) for item in value)
    if any(is_symbol(item) and not item.node.has_hint() for item in given):
        for whole in _WHOLE:
            with contextlib.suppress(DescriptorError):
                return at(whole)
    return at(None)


def _number(extent: Any, whole: int | None) -> Any:
    """A number for an extent: its hint or the stand-in; without one, torch reports the symbol."""
    if not is_symbol(extent):
        return extent
    if extent.node.has_hint():
        return extent.node.hint
    return int(extent) if whole is None else whole
