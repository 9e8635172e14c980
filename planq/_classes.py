"""The Python classes of each operator. :func:`planq.registry.register` fills the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planq import _core

if TYPE_CHECKING:
    from planq.descriptor import Descriptor
    from planq.plan import Plan


@dataclass(frozen=True, slots=True)
class Classes:
    """The three classes of an operator."""

    descriptor: type[Descriptor]
    args: type[Any]
    plan: type[Plan]


CLASSES: Final[dict[str, Classes]] = {}


def classes_of(operator: str) -> Classes:
    """The Python classes of an operator.

    Raises:
        DescriptorError: No such operator.
    """
    if operator not in CLASSES:
        _core.refuse_operator(operator)
    return CLASSES[operator]
