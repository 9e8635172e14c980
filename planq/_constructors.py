"""Constructors that answer a name which they do not know with the nearest that they do.

A dataclass makes its own ``__init__``, which raises TypeError and suggests nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any

from planq import _core
from planq._nearest import did_you_mean
from planq.errors import ArgumentError, DescriptorError, as_field


def tie_fields(made: type[Any], whose: str, table: Iterable[tuple[Any, ...]]) -> None:
    """Ties a class to the native table of its fields; names that are no fields it then refuses.

    Raises:
        TypeError: Names, order, requiredness or defaults differ.
    """
    declared = [
        (item.name, "required" if item.default is MISSING else f"default {item.default!s}")
        for item in fields(made)
        if item.init
    ]
    native = [
        (name, "required" if required else f"default {default!s}")
        for name, _, required, default, _ in table
    ]
    if declared != native:
        raise TypeError(
            f"the fields of {whose}: the Python class has {dict(declared)}, "
            f"the native half {dict(native)}"
        )
    _name_unknown_fields(made, whose)


def _name_unknown_fields(made: type[Any], whose: str) -> None:
    plain = made.__init__
    if hasattr(plain, "__wrapped__"):  # registered before
        return

    @functools.wraps(plain)
    def init(self: Any, /, **given: Any) -> None:
        try:
            plain(self, **given)
        except TypeError:
            _refuse_unknown(whose, given)
            raise

    type.__setattr__(made, "__init__", init)


def _refuse_unknown(whose: str, given: dict[str, Any]) -> None:
    try:
        _core.check_field_names(whose, given)
    except DescriptorError as error:
        raise error from None


_ARGS_INIT = """
def __init__(self, *, {parameters}, **unknown):
    if unknown:
        refuse(unknown)
    {body}
"""


def name_unknown_operands(args: type[Any], operator: str) -> None:
    """Lets a class of operands say so where it is given another one.

    Args are made for every call, so theirs is an ``__init__`` of its own: one that calls another
    would take half as long again. It is compiled when the first of them are made.
    """
    plain = args.__init__
    if hasattr(plain, "__wrapped__"):  # registered before
        return

    @functools.wraps(plain)
    def first(self: Any, /, **given: Any) -> None:
        type.__setattr__(args, "__init__", functools.wraps(plain)(_args_init(args, operator)))
        args.__init__(self, **given)

    type.__setattr__(args, "__init__", first)


def _args_init(args: type[Any], operator: str) -> Callable[..., None]:
    """An ``__init__`` that takes the operands and refuses other names."""
    operands = {item.name: item.default for item in fields(args)}

    def refuse(unknown: dict[str, Any]) -> None:
        name = next(iter(unknown))
        hint = did_you_mean(name, operands).removeprefix("; ")
        raise ArgumentError(
            as_field(name), f"an operand of {operator}", "a name that is none", hint
        )

    source = _ARGS_INIT.format(
        parameters=", ".join(
            name if default is MISSING else f"{name}={default!r}"
            for name, default in operands.items()
        ),
        body="; ".join(f"self.{name} = {name}" for name in operands),
    )
    scope: dict[str, Any] = {"refuse": refuse}
    exec(source, scope)
    made: Callable[..., None] = scope["__init__"]
    return made
