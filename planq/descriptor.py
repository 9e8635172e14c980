"""Descriptors: what an operation is, before anything is known of where it runs."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar

from planq import _core
from planq.dtypes import (
    Codebook,
    DType,
    Mode,
    NibbleOrder,
    NonFinite,
    Quotient,
    Rounding,
    parse_member,
)
from planq.errors import DescriptorError, as_field, shown
from planq.scope import Scope

D = TypeVar("D", bound="Descriptor")


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """What an operand has to be.

    Attributes:
        name: The field of the operator's args.
        role: ``"input"``, ``"output"``, or ``"inout"``: read, and updated in place.
        dtype: The logical element type.
        shape: The shape in storage elements (two 4-bit codes share a byte of the last axis).
        storage: The element type that memory holds, by name.
        optional: Whether it may be None.
        kind: ``"tensor"``, ``"list"`` (of tensors, whose shapes ``shape`` lists) or ``"scalar"``: a
            number, or an element in memory.
    """

    name: str
    role: str
    dtype: DType
    shape: tuple[int, ...]
    storage: str
    optional: bool = False
    kind: str = "tensor"


def _parse_shape(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DescriptorError("shape", f"expected a sequence of integers, got {shown(value)}")
    try:
        return tuple(operator.index(extent) for extent in value)
    except TypeError:
        raise DescriptorError(
            "shape", f"expected a sequence of integers, got {shown(value)}"
        ) from None


def _parse_bound(name: str) -> Callable[[Any], float | None]:
    def parse(value: Any) -> float | None:
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        raise DescriptorError(name, f"expected a number or None, got {shown(value)}")

    return parse


def _parse_flag(name: str) -> Callable[[Any], bool]:
    def parse(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise DescriptorError(name, f"expected True or False, got {shown(value)}")

    return parse


def _parse_integer(name: str) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise DescriptorError(name, f"expected an integer, got {shown(value)}") from None

    return parse


def _parse_count(name: str) -> Callable[[Any], int | None]:
    parse_integer = _parse_integer(name)

    def parse(value: Any) -> int | None:
        count = None if value is None else parse_integer(value)
        # The native layer has 0 for None.
        if count == 0:
            raise DescriptorError(name, "expected a positive integer or None, got 0")
        return count

    return parse


def _parse_dtype(name: str) -> Callable[[Any], DType | None]:
    return lambda value: None if value is None else DType.parse(value, name)


def _parse_name(name: str, vocabulary: type[Any]) -> Callable[[Any], Any]:
    return lambda value: parse_member(vocabulary, value, name)


# The names that operators share mean the same everywhere, so one parser each serves them all.
_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "shape": _parse_shape,
    "input_dtype": _parse_dtype("input_dtype"),
    "output_dtype": _parse_dtype("output_dtype"),
    "scale_dtype": _parse_dtype("scale_dtype"),
    "scope": Scope.parse,
    "mode": _parse_name("mode", Mode),
    "q_min": _parse_bound("q_min"),
    "q_max": _parse_bound("q_max"),
    "quotient": _parse_name("quotient", Quotient),
    "nonfinite": _parse_name("nonfinite", NonFinite),
    "include_zero": _parse_flag("include_zero"),
    "nibble_order": _parse_name("nibble_order", NibbleOrder),
    "zero_point_dtype": _parse_dtype("zero_point_dtype"),
    "bias_dtype": _parse_dtype("bias_dtype"),
    "rounding": _parse_name("rounding", Rounding),
    "dynamic": _parse_flag("dynamic"),
    "update": _parse_flag("update"),
    "axis": _parse_integer("axis"),
    "transpose": _parse_flag("transpose"),
    "inverse": _parse_flag("inverse"),
    "codebook": _parse_name("codebook", Codebook),
    "entries": _parse_count("entries"),
    "block_size": _parse_integer("block_size"),
    "nested_block_size": _parse_count("nested_block_size"),
    "absmax_dtype": _parse_dtype("absmax_dtype"),
    "absmax_given": _parse_flag("absmax_given"),
    "normalized": _parse_flag("normalized"),
    "quantiles": _parse_integer("quantiles"),
    "tail": _parse_bound("tail"),
}


def _to_native(value: Any) -> Any:
    """The plain form that crosses into the native layer (src/bindings/python/fields.h)."""
    if isinstance(value, Scope):
        return (value.kind, value.axis, value.size, value.rows)
    return getattr(value, "value", value)


def _from_native(name: str, value: Any, before: Any) -> Any:
    """The resolved value of a field in the type that the attribute has."""
    if name == "scope":
        return Scope(*value)
    if name.endswith("_dtype"):
        return DType(value) if value else None
    if name == "nested_block_size":
        return value or None
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return value if isinstance(value, (tuple, int)) else before


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Scope):
        return value.to_dict()
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "value", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """Base of all descriptors: checked and resolved when it is made, immutable afterwards.

    Fields that were left None hold the operator's default, so that descriptors which mean the same
    are equal and hash alike.

    Raises:
        DescriptorError: A field asks for something that has no meaning.
    """

    operator: ClassVar[str]
    _native: _core.Descriptor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [item.name for item in fields(self) if item.init]
        parsed = {name: _PARSERS[name](getattr(self, name)) for name in names}
        native = _core.Descriptor(
            self.operator, {name: _to_native(value) for name, value in parsed.items()}
        )
        for name, value in native.values().items():
            object.__setattr__(self, name, _from_native(name, value, parsed[name]))
        object.__setattr__(self, "_native", native)

    def operands(self) -> dict[str, OperandSpec]:
        """What each operand has to be, in the order of the args; absent operands are left out."""
        return {
            name: OperandSpec(name, role, DType(dtype), shape, storage, optional, kind)
            for name, role, dtype, shape, storage, optional, kind in self._native.operands()
        }

    def to_dict(self) -> dict[str, Any]:
        """The descriptor as plain JSON values, with the operator's name under ``op``."""
        values = {"op": self.operator}
        for item in fields(self):
            if item.init:
                values[item.name] = _to_json_value(getattr(self, item.name))
        return values

    def to_json(self) -> str:
        """The descriptor as JSON text; :meth:`from_json` makes an equal one of it."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls: type[D], values: object) -> D:
        """Makes the descriptor that :meth:`to_dict` wrote.

        Raises:
            DescriptorError: An unknown operator, an unknown or missing field, a wrong value.
        """
        from planq.registry import descriptor_class

        if not isinstance(values, dict) or not isinstance(values.get("op"), str):
            raise DescriptorError("op", "expected an object with the operator's name under 'op'")
        found = descriptor_class(values["op"])
        if not issubclass(found, cls):
            raise DescriptorError("op", f"expected {cls.operator}, got {found.operator}")
        given = {key: value for key, value in values.items() if key != "op"}
        known = {item.name for item in fields(found) if item.init}
        for name in given:
            if name not in known:
                raise DescriptorError(as_field(name), f"{found.operator} has no such field")
        try:
            return found(**given)
        except TypeError as error:
            raise DescriptorError("op", f"{found.operator}: {error}") from None

    @classmethod
    def from_json(cls: type[D], text: str) -> D:
        """Makes the descriptor that :meth:`to_json` wrote.

        Raises:
            DescriptorError: The text is no JSON, or not a descriptor.
        """
        try:
            values = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise DescriptorError("op", f"not JSON: {error}") from None
        return cls.from_dict(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)
