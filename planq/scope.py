"""Which elements of a tensor share one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planq import _core


@dataclass(frozen=True, slots=True)
class Scope:
    """How a tensor is divided into segments that share a scale: made by the constructors below.

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

    Attributes:
        kind: The constructor's name.
        axis: The axis of ``channel`` and ``group``.
        size: Elements of a ``group``; columns of a ``block``.
        rows: Rows of a ``block``.
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
        return cls.parse({"kind": "channel", "axis": axis})

    @classmethod
    def token(cls) -> Scope:
        """One segment per row: all axes but the last are kept."""
        return cls("token")

    @classmethod
    def group(cls, size: int, axis: int = -1) -> Scope:
        """Segments of ``size`` consecutive elements along an axis; the last may be shorter."""
        return cls.parse({"kind": "group", "size": size, "axis": axis})

    @classmethod
    def block(cls, rows: int, columns: int) -> Scope:
        """Tiles of the last two axes; those at the end of an axis may be smaller."""
        return cls.parse({"kind": "block", "rows": rows, "columns": columns})

    @classmethod
    def pair(cls) -> Scope:
        """A scale per row times a scale per column, for accumulators of a quantized product."""
        return cls("pair")

    def __str__(self) -> str:
        arguments = {
            "channel": f"{self.axis}",
            "group": f"{self.size}, axis={self.axis}",
            "block": f"{self.rows}, {self.size}",
        }
        return f"{self.kind}({arguments.get(self.kind, '')})"

    def to_dict(self) -> dict[str, Any]:
        """The scope as plain JSON values, with only the attributes of its kind."""
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
        """Reads a scope from itself, from its text, or from what :meth:`to_dict` writes.

        Fields of descriptors are read the same way.

        Args:
            value: The scope, a dictionary, or a text such as ``"token()"``, ``"group(128)"`` or
                ``"block(rows=64, columns=64)"``: a constructor with numbers, as ``str`` writes it.
            field: The descriptor field that a fault is reported under.

        Raises:
            DescriptorError: The value is none of these.
        """
        scope: Scope = _core.read_scope(value, field)
        return scope
