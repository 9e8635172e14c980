"""What torch is told of an operator: its arguments and results, from the native tables.

The tables say of operands their role, kind and presence, of fields their kind, default and source.
A descriptor may make exceptions (a scale that is measured is an output), so some descriptors of the
operator are asked as well.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from planq import _core
from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import DType, OperandKind, Role
from planq.errors import DescriptorError
from planq.preference import PlanPreference
from planq.registry import OperatorInfo, native_operator
from planq.scope import Scope

_EXTENT: Final = 64
_SCALARS: Final = {DType.FLOAT64: "float", DType.INT64: "SymInt", DType.BOOL: "bool"}
_VALUES: Final = {
    "flag": "bool",
    "number": "float",
    "integer": "int",
    "count": "int",
    "integer_list": "int[]",
}
# A name that torch takes for itself where it makes a mutable operator functional.
_TAKEN: Final = {"mode": "mode_"}
_SCOPES: Final = (
    Scope.tensor(),
    Scope.channel(0),
    Scope.token(),
    Scope.group(_EXTENT),
    Scope.block(_EXTENT, _EXTENT),
    Scope.pair(),
)


@dataclass(frozen=True, slots=True)
class Operand:
    """What an operator asks of an operand under any of its descriptors.

    Attributes:
        place: Which of the args it is.
        roles: Those that it may have.
        always: Whether every call has it.
        plain: Whether memory holds it in the shape and dtype that fields speak of.
        scalar: Of a scalar, torch's word for a number by value: one whose dtype the fields decide
            on is torch's Scalar, which keeps an integer what it is.
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
        """Whether some descriptor has it written."""
        return self.roles != {Role.INPUT}


@dataclass(frozen=True, slots=True)
class Field:
    """A line of the native field table; ``source`` and ``part`` are those of ``input.shape``."""

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
        text: As a schema has it, without a default.
        role: What it is to planq: ``operand``, ``memory`` (of a scalar), ``workspace``, ``field``,
            ``preference``.
        of: The name of the operand or field, of a descriptor or of a preference.
        mutable: Whether torch is told that it is written.
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
        """By its name."""
        return next(operand for operand in self.operands if operand.name == name)


def table_of(info: OperatorInfo) -> Table:
    """The operator's table.

    Raises:
        TypeError: No descriptor that was asked has a certain scalar, whose type is then not known.
    """
    native = native_operator(info.name)
    fields = tuple(
        Field(name, kind, required, default, *(source.split(".") if source else ("", "")))
        for name, kind, required, default, source in native["fields"]
    )
    asked = [desc.operands() for desc in _examples(info.descriptor, fields)]
    met = {name for specs in asked for name in specs}
    may_be_given = any(field.name.endswith("_given") for field in fields)
    if may_be_given and not set(native["operand_table"]) <= met:
        asked += [desc.operands() for desc in _rarer(info.descriptor, fields)]
    shapes = {field.source for field in fields if field.part == "shape"}
    operands = []
    for place, (name, declared) in enumerate(native["operand_table"].items()):
        found = [specs[name] for specs in asked if name in specs]
        operands.append(_operand(name, place, declared, found, len(asked), name in shapes))
    return Table(tuple(operands), fields)


def _operand(
    name: str,
    place: int,
    declared: tuple[str, str, str],
    found: list[OperandSpec],
    asked: int,
    tells_shape: bool,
) -> Operand:
    role, kind, presence = declared
    scalar = ""
    if kind == OperandKind.SCALAR:
        if not found:
            raise TypeError(f"the type of {name} is not known: no example of a descriptor has it")
        words = {_SCALARS[spec.dtype] for spec in found}
        scalar = words.pop() if len(words) == 1 else "Scalar"
    return Operand(
        name,
        place,
        OperandKind(kind),
        frozenset({Role(role)} | {spec.role for spec in found}),
        presence == "always" and len(found) == asked and not any(spec.optional for spec in found),
        all(spec.storage == spec.dtype for spec in found)
        and not (tells_shape and any(spec.shape != (_EXTENT, _EXTENT) for spec in found)),
        scalar,
    )


def _examples(make: type[Descriptor], fields: tuple[Field, ...]) -> list[Descriptor]:
    """Descriptors that differ in what may change roles: one for every dtype, and every two options.

    Descriptors are checked when they are made, so what has no meaning drops out by itself.
    """
    options, bases = _options(fields), _bases(fields)
    found = [(base, desc) for base in bases for desc in _made(make, base)]
    made = [desc for _, desc in found]
    # What an operand that tells a shape may be packed in.
    shapes = {field.source for field in fields if field.part == "shape"}
    stored = [
        (field.name, dtype)
        for field in fields
        for dtype in DType
        if field.kind == "dtype" and not field.required and field.source in ("", *shapes)
    ]
    for (base, _), option in itertools.product(found[:1], stored):
        made += _made(make, base | dict((option,)))
    for base, _ in found[:1]:
        for pair in itertools.combinations(options, 2):
            made += _made(make, base | dict(pair))
    for (base, _), option in itertools.product(found, options):
        made += _made(make, base | dict((option,)))
    return made


def _rarer(make: type[Descriptor], fields: tuple[Field, ...]) -> list[Descriptor]:
    """Descriptors of dtypes that need two choices beside them, without each flag and with it."""
    options = _options(fields)
    choices = [option for option in options if isinstance(option[1], enum.Enum)]
    flags: list[dict[str, Any]] = [{}, *({name: value} for name, value in options if value is True)]
    made: list[Descriptor] = []
    for base, pair in itertools.product(_bases(fields), itertools.combinations(choices, 2)):
        for flag in flags:
            made += _made(make, base | dict(pair) | flag)
    return made


def _options(fields: tuple[Field, ...]) -> list[tuple[str, Any]]:
    """What each optional field may hold beside its default."""
    return [
        (field.name, value) for field in fields if not field.required for value in _others(field)
    ]


def _bases(fields: tuple[Field, ...]) -> list[dict[str, Any]]:
    """The required fields with every dtype."""
    required = [field for field in fields if field.required]
    return [
        dict(zip((field.name for field in required), values, strict=True))
        for values in itertools.product(*map(_first_values, required))
    ]


def _made(make: type[Descriptor], values: dict[str, Any]) -> Iterator[Descriptor]:
    try:
        yield make(**values)
    except DescriptorError:
        return


def _first_values(field: Field) -> list[Any]:
    """What a required field may hold."""
    if field.kind == "dtype":
        return list(DType)
    values = {"shape": (_EXTENT, _EXTENT), "shape_list": ((_EXTENT,),), "scope": Scope.token()}
    return [values.get(field.kind, _EXTENT)]


def _others(field: Field) -> list[Any]:
    """What a field may hold beside its default."""
    if field.kind == "flag":
        return [not field.default]
    if field.kind == "enumeration":
        # What may be None changes no role.
        members = () if field.default is None else type(field.default)
        return [member for member in members if member != field.default]
    if field.kind == "scope":
        return [scope for scope in _SCOPES if scope != field.default]
    return [_EXTENT] if field.kind == "count" else []


def arguments_of(table: Table, *, allocating: bool) -> tuple[Argument, ...]:
    """The arguments of an overload: what every call has, then what has a default."""
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
    """What a caller insists on; the operands tell the backend. What pins a kernel comes first."""
    texts = {"text": "str?", "enumeration": "str", "flag": "bool", "limit": "int?"}
    listed = [(name, kind) for name, kind, *_ in _core.preference_fields() if name != "backend"]
    defaults = PlanPreference().to_dict()
    for name, kind in sorted(listed, key=lambda item: item[1] != "text"):
        text = texts[kind]
        yield Argument(name, text, "preference", name, default=defaults[name])


def _operand_arguments(
    operand: Operand, fields: set[str], *, allocating: bool
) -> Iterator[Argument]:
    """One, or of a scalar two; ``_tensor`` tells an operand from a field, or a number, so named."""
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
    """A field that an operand always tells is no argument."""
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
    if field.kind == "shape_list":
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


def results_of(table: Table) -> str:
    """What an allocating overload returns: tensors, or a list where a descriptor decides on it."""
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
