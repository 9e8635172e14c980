"""Rules of the native operand table, evaluated for extents that may be symbols.

A rule is what ``src/core/rules.h`` describes, as nested tuples whose first item is the operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, TypeAlias

import torch

Rule: TypeAlias = tuple[Any, ...]
_smaller: Final[Any] = torch.sym_min  # it has no type annotations


def values_of(rule: Rule) -> Iterator[str | None]:
    """The constants that a rule may yield; None for a field's value."""
    match rule:
        case ("when", _, then, otherwise):
            yield from values_of(then)
            yield from values_of(otherwise)
        case ("constant", value):
            yield value
        case _:
            yield None


def operations(rule: Rule) -> Iterator[str]:
    """The operations that a rule consists of."""
    yield rule[0]
    for part in rule[1:] if rule[0] != "is_any" else ():
        if isinstance(part, tuple):
            yield from operations(part)


def number(rule: Rule, fields: object) -> Any:
    """Evaluates a rule for a number; fields are attributes, and extents may be symbolic."""
    match rule:
        case ("constant", value):
            return value
        case ("field", name):
            return attrgetter(name)(fields)
        case ("is_any", name, members):
            return str(attrgetter(name)(fields)) in members
        case ("is_set", name):
            return attrgetter(name)(fields) is not None
        case ("when", condition, then, otherwise):
            return number(then if number(condition, fields) else otherwise, fields)
        case ("axis_of", shape, index):
            axes, at = shape_of(shape, fields), number(index, fields)
            return axes[at] if -len(axes) <= at < len(axes) else 1
        case ("elements", shape):
            return math.prod(shape_of(shape, fields))
        case ("length", shape):
            return len(shape_of(shape, fields))
        case ("axis_sum", ("field", name), index):
            at = number(index, fields)
            return sum(shape[at] for shape in attrgetter(name)(fields))
        case (operation, a, b):
            return _of_two(operation, number(a, fields), number(b, fields))
    raise ValueError(f"no rule of a number: {rule}")


def _of_two(operation: str, a: Any, b: Any) -> Any:
    match operation:
        case "equal":
            return a == b
        case "sum":
            return a + b
        case "product":
            return a * b
        case "groups":
            return (a + (b - 1)) // b
        case "smaller":
            return _smaller(a, b)
    raise ValueError(f"no rule of two numbers: {operation}")


def shape_of(rule: Rule, fields: object) -> tuple[Any, ...]:
    """Evaluates a rule for a shape; a number is a shape of one axis."""
    match rule:
        case ("field", name) if isinstance(axes := attrgetter(name)(fields), tuple):
            return axes
        case ("when", condition, then, otherwise):
            return shape_of(then if number(condition, fields) else otherwise, fields)
        case ("axes", *parts):
            return tuple(axis for part in parts for axis in shape_of(part, fields))
        case ("leading", dropped, shape):
            return shape_of(shape, fields)[:-dropped]
        case ("with_axis", shape, index, extent):
            changed = list(shape_of(shape, fields))
            changed[number(index, fields)] = number(extent, fields)
            return tuple(changed)
        case ("broadcast", a, b):
            return _broadcast(shape_of(a, fields), shape_of(b, fields))
        case ("packed", shape, condition):
            axes = shape_of(shape, fields)
            if not axes or not number(condition, fields):
                return axes
            return (*axes[:-1], _of_two("groups", axes[-1], 2))
        case _:
            return (number(rule, fields),)


def _broadcast(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Broadcasts two shapes, aligned at their last axes."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(_wider(*pair) for pair in pairs)


def _wider(a: Any, b: Any) -> Any:
    """The broadcast extent of two that are equal, or one of which is 1."""
    if isinstance(a, int):
        return b if a == 1 else a
    if isinstance(b, int):
        return a if b == 1 else b
    return b if a.node.expr != b.node.expr and a == 1 else a
