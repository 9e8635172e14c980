"""Which elements of a tensor share one scale."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from planq._nearest import did_you_mean
from planq.errors import DescriptorError, shown


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise DescriptorError("scope", f"expected an integer {what}, got {shown(value)}") from None


@dataclass(frozen=True, slots=True)
class Scope:
    """The segments of a tensor: made by the constructors below.

    The parameters (scale, zero point) of a tensor of shape ``shape`` have the shape

    ========================  ======================================================
    ``tensor()``              ``(1,)``
    ``channel(axis)``         ``(shape[axis],)``
    ``token()``               ``shape[:-1]``
    ``group(size, axis)``     ``shape`` with that axis divided by size, rounded up
    ``block(rows, columns)``  ``shape`` with the last two axes divided likewise
    ``pair()``                ``shape[:-1]`` for rows, ``(shape[-1],)`` for columns
    ========================  ======================================================

    Negative axes count from the last; a descriptor normalises them.
    """

    kind: str
    axis: int = 0
    size: int = 0
    rows: int = 0

    @classmethod
    def tensor(cls) -> Scope:
        """One segment: the whole tensor."""
        return cls("tensor")

    @classmethod
    def channel(cls, axis: int) -> Scope:
        """One segment per index of an axis."""
        return cls("channel", _integer(axis, "axis"))

    @classmethod
    def token(cls) -> Scope:
        """One segment per row: all axes but the last are kept."""
        return cls("token")

    @classmethod
    def group(cls, size: int, axis: int = -1) -> Scope:
        """Segments of ``size`` consecutive elements along an axis; the last may be shorter."""
        return cls("group", _integer(axis, "axis"), _integer(size, "size"))

    @classmethod
    def block(cls, rows: int, columns: int) -> Scope:
        """Tiles of the last two axes; those at the end of an axis may be smaller."""
        return cls("block", 0, _integer(columns, "columns"), _integer(rows, "rows"))

    @classmethod
    def pair(cls) -> Scope:
        """A scale for the row times one for the column, of accumulators of a quantized product."""
        return cls("pair")

    def __str__(self) -> str:
        arguments = {
            "channel": f"{self.axis}",
            "group": f"{self.size}, axis={self.axis}",
            "block": f"{self.rows}, {self.size}",
        }
        return f"{self.kind}({arguments.get(self.kind, '')})"

    def to_dict(self) -> dict[str, Any]:
        """The scope as plain JSON values; only what its kind has."""
        values: dict[str, Any] = {"kind": self.kind}
        if self.kind in ("channel", "group"):
            values["axis"] = self.axis
        if self.kind == "group":
            values["size"] = self.size
        if self.kind == "block":
            values |= {"rows": self.rows, "columns": self.size}
        return values

    @classmethod
    def parse(cls, value: object, field: str = "scope") -> Scope:
        """Reads a scope from itself or from what :meth:`to_dict` writes.

        Args:
            value: The scope, or a dictionary.
            field: The descriptor field that a fault is reported under.

        Raises:
            DescriptorError: The value is neither.
        """
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        known = isinstance(kind, str) and kind in _CONSTRUCTORS
        if known and isinstance(value, cls):
            return value
        if known and isinstance(value, dict):
            arguments = {key: item for key, item in value.items() if key != "kind"}
            _check_names(value["kind"], arguments, field)
            return _CONSTRUCTORS[value["kind"]](**arguments)
        hint = did_you_mean(value, (f"planq.Scope.{name}()" for name in _CONSTRUCTORS))
        raise DescriptorError(field, f"expected a planq.Scope, got {shown(value)}{hint}")


_CONSTRUCTORS: Final[dict[str, Callable[..., Scope]]] = {
    "tensor": Scope.tensor,
    "channel": Scope.channel,
    "token": Scope.token,
    "group": Scope.group,
    "block": Scope.block,
    "pair": Scope.pair,
}


def _check_names(kind: str, arguments: dict[str, Any], field: str) -> None:
    """Raises where the parts of a scope are not those of its kind."""
    parts = inspect.signature(_CONSTRUCTORS[kind]).parameters
    for name in arguments:
        if name not in parts:
            raise DescriptorError(field, f"a {kind} scope has no {shown(name)}")
    for name, part in parts.items():
        if part.default is part.empty and name not in arguments:
            raise DescriptorError(field, f"a {kind} scope needs {shown(name)}")
