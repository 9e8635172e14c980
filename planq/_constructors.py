"""What makes the classes of descriptors and args: dataclasses with shared or deferred methods.

A library has scores of operators, of which a program uses a few. To generate the methods of all
these dataclasses would take longer than all else of ``import planq``. So only ``__init__`` is
generated, when a first instance is made. It answers an unknown keyword with the nearest known one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import Parameter, Signature
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from planq import _core
from planq._classes import CLASSES
from planq._nearest import did_you_mean
from planq.errors import ArgumentError, DescriptorError, as_field

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def descriptor_class(plain: type[T]) -> type[T]:
    """In place of ``dataclass(frozen=True, slots=True, kw_only=True)``, for descriptors."""
    made: type[T] = _made(plain, _hash, _descriptor_init)
    return made


@dataclass_transform(kw_only_default=True)
def args_class(plain: type[T]) -> type[T]:
    """In place of ``dataclass(slots=True, kw_only=True)``, for args."""
    made: type[T] = _made(plain, None, _args_init)
    return made


def _made(plain: Any, hashed: Any, init: Callable[[type[Any]], Callable[..., None]]) -> Any:
    plain.__repr__ = _repr
    plain.__eq__ = _eq
    plain.__hash__ = hashed
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(plain)
    # The class comes first, so that there are at least two, whose values are a tuple.
    compared = (item.name for item in fields(made) if item.compare)
    type.__setattr__(made, "_values", attrgetter("__class__", *compared))
    type.__setattr__(made, "__init__", _Deferred(made, init))
    return made


class _Deferred:
    """An ``__init__`` that is compiled when it is first asked for, and then stands in its place."""

    __slots__ = ("compiled", "made")

    def __init__(
        self, made: type[Any], compiled: Callable[[type[Any]], Callable[..., None]]
    ) -> None:
        self.made = made
        self.compiled = compiled

    def __get__(self, instance: Any, owner: type[Any]) -> Callable[..., None]:
        init: Any = self.compiled(self.made)
        init.__name__ = "__init__"
        init.__qualname__ = f"{self.made.__qualname__}.__init__"
        init.__signature__ = _signature(self.made)
        type.__setattr__(self.made, "__init__", init)
        bound: Callable[..., None] = init.__get__(instance, owner)
        return bound


def _signature(made: type[Any]) -> Signature:
    taken = [Parameter("self", Parameter.POSITIONAL_ONLY)]
    for item in fields(made):
        if item.init:
            default = Parameter.empty if item.default is MISSING else item.default
            kind = Parameter.KEYWORD_ONLY
            taken.append(Parameter(item.name, kind, default=default, annotation=item.type))
    return Signature(taken, return_annotation="None")


def _repr(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._values(self) == other._values(other)


def _hash(self: Any) -> int:
    return hash(self._values(self))


_INIT = """
def __init__({parameters}):
    {body}
"""


def _compiled(
    made: type[Any],
    assignment: Callable[[Field[Any]], str],
    scope: dict[str, Any],
    *more: tuple[str, str],
) -> Callable[..., None]:
    """An ``__init__`` that assigns every field.

    Args:
        made: The class.
        assignment: Returns the statement for a field.
        scope: What the statements see.
        more: Further parameters, each with a statement that comes before the others.
    """
    taken = [item for item in fields(made) if item.init]
    scope |= {f"default_{item.name}": item.default for item in taken}
    parameters = ["self", "*"] if taken else ["self"]
    parameters += [
        item.name if item.default is MISSING else f"{item.name}=default_{item.name}"
        for item in taken
    ]
    parameters += [parameter for parameter, _ in more]
    body = [statement for _, statement in more]
    body += [assignment(item) for item in taken] or ["pass"]
    exec(_INIT.format(parameters=", ".join(parameters), body="\n    ".join(body)), scope)
    made_init: Callable[..., None] = scope["__init__"]
    return made_init


def _put(item: Field[Any]) -> str:
    """The statement that assigns a field of a descriptor."""
    return f"put(self, {item.name!r}, {item.name})"


def _descriptor_init(made: type[Any]) -> Callable[..., None]:
    assign = _compiled(made, _put, {"put": object.__setattr__})
    resolve = _core.resolve_descriptor

    def init(self: Any, /, **given: Any) -> None:
        try:
            assign(self, **given)
        except TypeError:
            _refuse_unknown(made.operator, given)
            raise
        # The native field table says how each attribute is parsed; each gets its resolved value.
        resolve(self)

    return init


def _args_init(made: type[Any]) -> Callable[..., None]:
    """Args are made for every call: another ``__init__`` around this one would take half of it."""
    names = [item.name for item in fields(made)]

    def refuse(unknown: dict[str, Any]) -> None:
        name = next(iter(unknown))
        hint = did_you_mean(name, names).removeprefix("; ")
        operator = next(name for name, known in CLASSES.items() if known.args is made)
        expected = f"an operand of {operator}"
        raise ArgumentError(as_field(name), expected, "a name that is none", hint)

    check = ("**unknown", "if unknown: refuse(unknown)")

    def assign(item: Field[Any]) -> str:
        return f"self.{item.name} = {item.name}"

    return _compiled(made, assign, {"refuse": refuse}, check)


def tie_fields(made: type[Any], whose: str, table: Iterable[tuple[Any, ...]]) -> None:
    """Compares a class with the native table of its fields.

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


def name_unknown_fields(made: type[Any], whose: str) -> None:
    """Makes a dataclass of fields refuse unknown keywords by name."""
    plain = made.__init__

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
