"""Extents that are known when a plan runs, not when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from planq import _core


@final
@dataclass(frozen=True, slots=True)
class Dim:
    """An extent of a shape that is read from the operands at ``run``: ``Dim("m", max=16384)``.

    Any axis of a shape but the last may be one. All extents of one name are equal. At least one
    operand of a call has to have the extent. If all of these are optional and left out, the call is
    refused with :class:`planq.ArgumentError`.

    Attributes:
        name: An identifier of at most 31 bytes in UTF-8.
        max: The largest extent, at least 1; the actual extent at ``run`` is 0 to ``max``.

    Raises:
        DescriptorError: The name is no identifier, or the maximum is no positive 64-bit integer.
    """

    name: str
    max: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "max", _core.read_maximum(self.name, self.max))

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, max={self.max})"

    def to_dict(self) -> dict[str, Any]:
        """The extent as plain JSON values."""
        return {"dim": self.name, "max": self.max}

    @classmethod
    def parse(cls, value: object, field: str = "dim") -> Dim:
        """Reads what :meth:`to_dict` writes.

        Args:
            value: The dictionary.
            field: The descriptor field that a fault is reported under.

        Raises:
            DescriptorError: The value is something else.
        """
        dim: Dim = _core.read_dim(value, field)
        return dim
