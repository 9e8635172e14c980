"""Results of calls without memory, whose extents may be symbols."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, Final

from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import Role
from planq.errors import DescriptorError
from planq.registry import OperatorInfo, native_operator
from planq.torch._rules import shape_of

# In the place of symbols that have no hint: what is whole in nearly every unit, small and large.
_WHOLE: Final = (64, 64 * 3 * 5 * 7)


def is_symbol(extent: object) -> bool:
    """Whether an extent is not known yet."""
    return hasattr(extent, "node") and not isinstance(extent, int)


def results_of(
    info: OperatorInfo, values: dict[str, Any]
) -> list[tuple[OperandSpec, tuple[Any, ...]]]:
    """The outputs of the descriptor with these fields, each with its shape, which may have symbols.

    Raises:
        DescriptorError: The fields have no meaning.
    """
    desc = _descriptor(info, values)
    resolved = {item.name: getattr(desc, item.name) for item in fields(desc) if item.init}
    shapes = {name: value for name, value in values.items() if isinstance(value, tuple)}
    known = SimpleNamespace(**resolved | shapes)
    table = native_operator(info.name)["operand_table"]
    return [
        (spec, shape_of(table[name]["shape"], known))
        for name, spec in desc.operands().items()
        if spec.role is Role.OUTPUT
    ]


def _descriptor(info: OperatorInfo, values: dict[str, Any]) -> Descriptor:
    """The descriptor at the extents that torch traces with.

    What it resolves does not depend on extents; what it asks of them, every call asks again.
    """

    def at(whole: int | None) -> Descriptor:
        return info.descriptor(
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
    """What stands for an extent; without a number for symbols, torch says which it has to know."""
    if not is_symbol(extent):
        return extent
    if extent.node.has_hint():
        return extent.node.hint
    return int(extent) if whole is None else whole
