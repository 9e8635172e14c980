"""Schemas of torch's operators: arguments and results, derived from the native tables.

The tables have the kind, default and source of each field, and the rules for each operand, see
``src/core/rules.h``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from planq import _core
from planq.dtypes import DType, OperandKind, Role
from planq.preference import PlanPreference
from planq.registry import native_operator
from planq.torch._rules import operations, values_of

_SCALARS: Final = {DType.FLOAT64: "float", DType.INT64: "SymInt", DType.BOOL: "bool"}
_VALUES: Final = {
    "flag": "bool",
    "number": "float",
    "integer": "int",
    "count": "int",
    "integer_list": "int[]",
}
_ALWAYS: Final = ("constant", 1)
_NEVER: Final = ("constant", 0)
# A name that torch reserves when it makes a mutable operator functional.
_TAKEN: Final = {"mode": "mode_"}


@dataclass(frozen=True, slots=True)
class Operand:
    """What all descriptors of an operator have in common about an operand.

    Attributes:
        name: Its name.
        place: Its position in the args.
        kind: A tensor, a list or a scalar.
        roles: The roles that it may have.
        always: Whether every call has it.
        plain: Whether its stored shape and dtype are those of the fields, so it is not packed.
        scalar: For a scalar, torch's type of a number by value. If the fields decide between
            integer and float, it is torch's Scalar, which keeps integers exact.
    """

    name: str
    place: int
    kind: OperandKind
    roles: frozenset[Role]
    always: bool
    plain: bool
    scalar: str

    @property
    def written(self) -> bool:
        """Whether it is written under some descriptor."""
        return self.roles != {Role.INPUT}


@dataclass(frozen=True, slots=True)
class Field:
    """A line of the native field table.

    A field that follows from ``input.shape`` has ``source`` "input" and ``part`` "shape".
    """

    name: str
    kind: str
    required: bool
    default: Any
    source: str
    part: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an overload.

    Attributes:
        name: Its name in the schema.
        text: Its type in the schema.
        role: What it is to planq: ``operand``, ``memory`` (of a scalar), ``workspace``, ``field``
            or ``preference``.
        of: The name of the operand, or of the field of the descriptor or preference.
        required: Whether it has no default.
        default: The default value.
        mutable: Whether the schema declares it as written.
    """

    name: str
    text: str
    role: str
    of: str
    required: bool = False
    default: Any = None
    mutable: bool = False

    def __str__(self) -> str:
        if self.required:
            return f"{self.text} {self.name}"
        default = f'"{self.default}"' if isinstance(self.default, str) else self.default
        return f"{self.text} {self.name}={default}"


@dataclass(frozen=True, slots=True)
class Table:
    """The operands and fields of an operator."""

    operands: tuple[Operand, ...]
    fields: tuple[Field, ...]

    @property
    def updates(self) -> bool:
        """Whether the operator updates an operand in place."""
        return any(Role.INOUT in operand.roles for operand in self.operands)

    def operand(self, name: str) -> Operand:
        """The operand of this name."""
        return next(operand for operand in self.operands if operand.name == name)


def table_of(operator: str) -> Table:
    """The table of an operator."""
    native = native_operator(operator)
    fields = tuple(
        Field(name, kind, required, default, *(source.split(".") if source else ("", "")))
        for name, kind, required, default, source in native["fields"]
    )
    shapes = {field.source: field.name for field in fields if field.part == "shape"}
    operands = (
        _operand(name, place, rules, shapes.get(name))
        for place, (name, rules) in enumerate(native["operand_table"].items())
    )
    return Table(tuple(operands), fields)


def _operand(name: str, place: int, rules: dict[str, Any], told: str | None) -> Operand:
    """An operand with these rules; ``told`` is the shape field that follows from it."""
    kind = OperandKind(rules["kind"])
    return Operand(
        name,
        place,
        kind,
        frozenset(Role(role) for role in values_of(rules["role"]) if role),
        rules["present"] == _ALWAYS and rules["optional"] == _NEVER,
        rules["shape"] == ("field", told) if told else "packed" not in operations(rules["shape"]),
        _scalar(rules["dtype"]) if kind is OperandKind.SCALAR else "",
    )


def _scalar(rule: tuple[Any, ...]) -> str:
    """The schema type of torch for a number of these types."""
    words = {_SCALARS[DType(dtype)] for dtype in values_of(rule) if dtype}
    return words.pop() if len(words) == 1 else "Scalar"


def arguments_of(table: Table, *, allocating: bool) -> tuple[Argument, ...]:
    """The arguments of an overload: required ones, then those with a default."""
    named = {field.name for field in table.fields}
    operands = [
        argument
        for operand in table.operands
        if not allocating or Role.INPUT in operand.roles
        for argument in _operand_arguments(operand, named, allocating=allocating)
    ]
    given = [argument for field in table.fields for argument in _field_arguments(table, field)]
    if not allocating:
        workspace = Argument("workspace", "Tensor(workspace!)?", "workspace", "", mutable=True)
        operands.append(workspace)
    listed = (*operands, *given, *_preferences())
    return tuple(sorted(listed, key=lambda argument: not argument.required))


def _preferences() -> Iterator[Argument]:
    """Fields of the preference without ``backend``, which operands decide; pins come first."""
    texts = {"text": "str?", "enumeration": "str", "flag": "bool", "limit": "int?"}
    listed = [(name, kind) for name, kind, *_ in _core.preference_fields() if name != "backend"]
    defaults = PlanPreference().to_dict()
    for name, kind in sorted(listed, key=lambda item: item[1] != "text"):
        text = texts[kind]
        yield Argument(name, text, "preference", name, default=defaults[name])


def _operand_arguments(
    operand: Operand, fields: set[str], *, allocating: bool
) -> Iterator[Argument]:
    """One argument, or two for a scalar.

    ``_tensor`` marks a scalar in memory, and an operand that has the name of a field.
    """
    name, mutable = operand.name, operand.written and not allocating
    if operand.kind == OperandKind.SCALAR and not operand.written:
        yield Argument(name, f"{operand.scalar}?", "operand", name)
        yield Argument(f"{name}_tensor", "Tensor?", "memory", name)
        return
    required = operand.always and (operand.roles == {Role.INPUT} or not allocating)
    text = f"Tensor(a{operand.place}!)" if mutable else "Tensor"
    text += "[]" if operand.kind == OperandKind.LIST else ""
    text += "" if required else "?"
    shown = f"{name}_tensor" if name in fields else name
    yield Argument(shown, text, "operand", name, required=required, mutable=mutable)


def _field_arguments(table: Table, field: Field) -> Iterator[Argument]:
    """The argument for a field; none if it always follows from an operand."""
    if field.source:
        told = table.operand(field.source)
        known = told.always and told.roles <= {Role.INPUT, Role.INOUT}
        if (known and told.plain) or field.kind == "shape_list":
            return
        text = "SymInt[]?" if field.part == "shape" else "str?"
        yield Argument(_TAKEN.get(field.name, field.name), text, "field", field.name)
        return
    text = {"shape": "SymInt[]"}.get(field.kind, _VALUES.get(field.kind, "str"))
    default = field.default
    if field.kind in ("shape_list", "enumeration_list") and not field.required:
        default = "[]"
    elif field.kind == "integer_list":
        default = list(default)
    elif field.kind == "scope" and default is not None:
        default = str(default)
    elif default is not None:
        default = getattr(default, "value", default)
    if default is None and not field.required:
        text += "?"
    name = _TAKEN.get(field.name, field.name)
    yield Argument(name, text, "field", field.name, field.required, default)


def return_of(table: Table) -> str:
    """The return type of an allocating overload: tensors, or a list if fields decide on them."""
    outputs = [operand for operand in table.operands if Role.OUTPUT in operand.roles]
    fixed = all(
        operand.always and operand.roles == {Role.OUTPUT} and operand.kind != OperandKind.LIST
        for operand in outputs
    )
    if not fixed:
        return "Tensor[]"
    return "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"


def schema(name: str, arguments: tuple[Argument, ...], results: str) -> str:
    """The text that torch parses."""
    return f"{name}({', '.join(map(str, arguments))}) -> {results}"
