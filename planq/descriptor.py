"""Descriptors: what an operation is, independent of where it runs."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from planq import _core
from planq._classes import classes_of
from planq._constructors import descriptor_class
from planq.arguments import Shape
from planq.dim import Dim
from planq.dtypes import DType, OperandKind, Role
from planq.errors import DescriptorError

D = TypeVar("D", bound="Descriptor")

_STORAGE_BYTES: dict[str, int] = {name: (bits + 7) // 8 for name, _, bits, *_ in _core.formats()}


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """What an operand has to be.

    Attributes:
        name: The field of the operator's args.
        role: Whether it is read, written, or updated in place.
        dtype: The logical element type, for instance int4.
        shape: The shape in storage elements (two 4-bit codes share a byte of the last axis); a
            :class:`Dim` for an extent that is only known at ``run``.
        storage: The name of the element type in memory, for instance uint8 for int4.
        optional: Whether it may be None.
        kind: A tensor, a list of tensors, or a scalar (a number, or one element in memory).
        shapes: For a list, the shape of each member; otherwise empty.
    """

    name: str
    role: Role
    dtype: DType
    shape: Shape
    storage: str
    optional: bool = False
    kind: OperandKind = OperandKind.TENSOR
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape with every :class:`Dim` at its largest."""
        return tuple(item.max if isinstance(item, Dim) else item for item in self.shape)

    @property
    def nbytes(self) -> int:
        """Its size in bytes if it is contiguous, with every :class:`Dim` at its largest."""
        shapes = self.shapes if self.kind is OperandKind.LIST else (self.extents,)
        return sum(map(math.prod, shapes)) * _STORAGE_BYTES[self.storage]


@descriptor_class
class Descriptor:
    """Base of all descriptors: checked and resolved when it is made, immutable afterwards.

    A field that was given as None holds the operator's default. So descriptors that mean the same
    are equal and have the same hash.

    Raises:
        DescriptorError: A field has a value that is not allowed, or the operator has no such field.
    """

    operator: ClassVar[str]
    _native: _core.Descriptor = field(init=False, repr=False, compare=False)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def operands(self) -> dict[str, OperandSpec]:
        """What each operand has to be, in the order of the args; absent operands are left out."""
        dims = {dim.name: dim for dim in self.dims()}
        return {
            name: OperandSpec(
                name,
                Role(role),
                DType(dtype),
                tuple(dims.get(item, item) for item in shape),
                storage,
                optional,
                OperandKind(kind),
                shapes,
            )
            for name, role, dtype, shape, storage, optional, kind, shapes in self._native.operands()
        }

    def dims(self) -> tuple[Dim, ...]:
        """The extents that are only known at ``run``, each once, in the order of the fields."""
        found: dict[str, Dim] = {}
        for item in fields(self):
            value = getattr(self, item.name) if item.init else ()
            for part in value if isinstance(value, tuple) else ():
                if isinstance(part, Dim):
                    found[part.name] = part
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """The descriptor as plain JSON values, with the operator's name under ``op``."""
        values: dict[str, Any] = json.loads(self.to_json())
        return values

    def to_json(self) -> str:
        """The descriptor as JSON text; :meth:`from_json` makes an equal one of it."""
        return self._native.to_json()

    @classmethod
    def from_dict(cls: type[D], values: Any) -> D:
        """Makes the descriptor that :meth:`to_dict` wrote.

        Raises:
            DescriptorError: An unknown operator, an unknown or missing field, a wrong value.
        """
        found = classes_of(_core.check_descriptor(values)).descriptor
        if not issubclass(found, cls):
            raise DescriptorError("op", f"expected {cls.operator}, got {found.operator}")
        return found(**{key: value for key, value in values.items() if key != "op"})

    @classmethod
    def from_json(cls: type[D], text: str) -> D:
        """Makes the descriptor that :meth:`to_json` wrote.

        Raises:
            DescriptorError: The text is not JSON, or not a descriptor.
        """
        try:
            values = _core.parse_json(text)
        except ValueError as error:
            raise DescriptorError("op", str(error)) from None
        return cls.from_dict(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)
