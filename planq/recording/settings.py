"""What the environment says about recording."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planq.errors import PlanqError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Where runs are kept, which and how many.

    Attributes:
        folder: Where files go; it is made when the first run is written.
        operators: Plans are chosen if this is found in the name of their operator or in their SKU.
        every: Of each plan, the first run is kept, and then one in so many.
        mebibytes: The size of the ring for operands that are not written yet.
    """

    folder: Path
    operators: re.Pattern[str] = re.compile("")
    every: int = 1000
    mebibytes: int = 256

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Reads ``PLANQ_RECORD`` and the variables whose names begin with it.

        Raises:
            PlanqError: A variable has a value that is not allowed.
        """
        return cls(
            # A later change of the working folder moves nothing.
            Path(environment["PLANQ_RECORD"]).absolute(),
            _pattern(environment, "PLANQ_RECORD_OPERATORS"),
            _number(environment, "PLANQ_RECORD_EVERY", 1000),
            _number(environment, "PLANQ_RECORD_MIB", 256),
        )


def _pattern(environment: Mapping[str, str], name: str) -> re.Pattern[str]:
    text = environment.get(name, "")
    try:
        return re.compile(text)
    except re.error as error:
        raise PlanqError(f"{name}: expected a regular expression, got {shown(text)}") from error


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if re.fullmatch("[0-9]{1,9}", text, re.ASCII) and 1 <= int(text) <= _MOST:
        return int(text)
    raise PlanqError(f"{name}: expected an integer from 1 to {_MOST}, got {shown(text)}")
