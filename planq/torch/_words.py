"""Turns values of fields into the text that torch's operators take. Dynamo traces this."""

from __future__ import annotations

from typing import Any

import torch

from planq.scope import Scope


def word(value: Any) -> str:
    """The text of an enumeration member, a scope, a dtype of torch or NumPy, or a name."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Scope):
        return value.__str__()
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    name: str = value.__name__ if isinstance(value, type) else value.name
    return name
