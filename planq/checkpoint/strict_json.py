"""Reads JSON from untrusted files: names must be unique, and all numbers finite."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn


def parse(content: bytes | str, parse_int: Callable[[str], int] = int) -> Any:
    """Reads JSON.

    Args:
        content: The text.
        parse_int: Reads the digits of an integer.

    Raises:
        ValueError: It is not JSON, names something twice, has a number beyond those of double, or
            is nested deeper than Python reads.
    """
    try:
        return json.loads(
            content,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=parse_int,
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the name {name!r} appears twice")
        values[name] = value
    return values


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:24]} is beyond the numbers of double")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
