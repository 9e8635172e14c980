"""Defines every registered operator as an operator of torch."""

from __future__ import annotations

from typing import Any, Final

import torch

from planq.registry import OperatorInfo, on_register, operators
from planq.torch import _autograd, _transforms
from planq.torch._calls import Overload
from planq.torch._schema import arguments_of, return_of, schema, table_of

# Registered kernels live as long as the library object.
_make: Any = torch.library.Library  # it has no type annotations
LIBRARY: Final[Any] = _make("planq", "FRAGMENT")
OVERLOADS: Final[dict[str, Overload]] = {}


def define_all() -> None:
    """Defines the operators that are registered and not yet defined."""
    for info in operators():
        if info.name not in _defined:
            _defined.add(info.name)
            _define_operator(info)


_defined: Final[set[str]] = set()


def _define_operator(info: OperatorInfo) -> None:
    table = table_of(info)
    if table.updates:
        _define(info, info.name, allocating=False)
        return
    _define(info, info.name, allocating=True)
    _define(info, f"{info.name}.out", allocating=False)


def _define(info: OperatorInfo, name: str, *, allocating: bool) -> None:
    table = table_of(info)
    arguments = arguments_of(table, allocating=allocating)
    overload = Overload(info, table, arguments, allocating=allocating)
    LIBRARY.define(schema(name, arguments, return_of(table) if allocating else "()"))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, overload.run, key)
    LIBRARY._register_fake(name, overload.fake)
    LIBRARY.impl(name, _transforms.level_of(overload, name), _transforms.KEY)
    if not _autograd.register(LIBRARY, name, overload):
        # The kernels check themselves whether a gradient would be lost.
        LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    OVERLOADS[name] = overload


on_register(define_all)
