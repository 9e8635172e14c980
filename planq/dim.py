"""Extents that are known when a plan runs, not when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from planq.errors import DescriptorError, shown

_LONGEST_NAME: Final = 31


@final
@dataclass(frozen=True, slots=True)
class Dim:
    """An extent of a shape that is read from the operands at ``run``: ``Dim("m", max=16384)``.

    Any axis of a shape but the last may have one. All extents of one name are the same extent. At
    least one operand of every call has to have it: a call that leaves all of those out is refused
    with :class:`planq.ArgumentError`.

    Attributes:
        name: An identifier of at most 31 bytes in UTF-8.
        max: The largest extent that may come, at least 1; at ``run`` it is 0 to ``max``.

    Raises:
        DescriptorError: The name is no identifier, or the maximum no positive integer of 64 bits.
    """

    name: str
    max: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "max", _checked_maximum(self.name, self.max, "dim"))

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
        if not isinstance(value, dict) or value.keys() != {"dim", "max"}:
            expected = "an extent: an integer or {'dim': name, 'max': integer}"
            raise DescriptorError(field, f"expected {expected}, got {shown(value)}")
        return cls(value["dim"], _checked_maximum(value["dim"], value["max"], field))


def _checked_maximum(name: object, maximum: object, field: str) -> int:
    is_name = isinstance(name, str) and name.isidentifier() and len(name.encode()) <= _LONGEST_NAME
    if not is_name:
        expected = f"a Dim's name, an identifier of at most {_LONGEST_NAME} bytes"
        raise DescriptorError(field, f"expected {expected}, got {shown(name)}")
    most = maximum if isinstance(maximum, int) and not isinstance(maximum, bool) else 0
    if not 1 <= most < 2**63:
        expected = f"a maximum of 1 to 2^63 - 1 for the Dim '{name}'"
        raise DescriptorError(field, f"expected {expected}, got {shown(maximum)}")
    return most
