"""Suggestions for misspelt words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Other common names of element types.
_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "fp8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
    "u8": "uint8",
}
_MOST = 3


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Returns the end of a message that names the nearest choices; empty if none is near.

    Args:
        word: The value that was given.
        choices: The values that are allowed.
    """
    if not isinstance(word, str) or not 0 < len(word) <= 40:
        return ""
    known = list(choices)
    plain = word.lower()
    alias = _ALIASES.get(plain)
    if alias in known:
        found = [alias]
    else:
        lower = {choice.lower().rpartition(".")[2]: choice for choice in known}
        begun = [choice for key, choice in lower.items() if key.startswith(plain)]
        found = begun[:_MOST] or [lower[key] for key in _near(plain, lower)]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _near(word: str, choices: Iterable[str]) -> list[str]:
    from difflib import get_close_matches  # which takes longer to import than most of planq

    return get_close_matches(word, list(choices), _MOST)
