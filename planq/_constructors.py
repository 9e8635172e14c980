"""Constructors that answer an unknown keyword with the nearest known one.

The ``__init__`` that a dataclass generates raises a TypeError without a suggestion.
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
    """Compares a class with the native table of its fields, and makes it refuse unknown keywords.

    Raises:
        TypeError: Names or order of fields differ, or which are required, or defaults.
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
    """Makes a class of args refuse unknown operands by name.

    Args are made for every call, so their ``__init__`` is generated: one that wraps another would
    take one and a half times as long. It is compiled when the first args are made.
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
