"""Defines every registered operator as an operator of torch."""

from __future__ import annotations

from typing import Any, Final

import torch

from planq._classes import CLASSES
from planq.descriptor import Descriptor
from planq.registry import on_register
from planq.torch import _autograd, _transforms
from planq.torch._calls import Overload
from planq.torch._schema import Table, arguments_of, return_of, schema, table_of

# Registered kernels live as long as the library object.
_make: Any = torch.library.Library  # it has no type annotations
LIBRARY: Final[Any] = _make("planq", "FRAGMENT")
OVERLOADS: Final[dict[str, Overload]] = {}


def define_all() -> None:
    """Defines the operators that are registered and not yet defined."""
    for name, classes in sorted(CLASSES.items()):
        if name not in _defined:
            _defined.add(name)
            _define_operator(classes.descriptor)


_defined: Final[set[str]] = set()


def _define_operator(descriptor: type[Descriptor]) -> None:
    table, name = table_of(descriptor.operator), descriptor.operator
    if table.updates:
        _define(descriptor, table, name, allocating=False)
        return
    _define(descriptor, table, name, allocating=True)
    _define(descriptor, table, f"{name}.out", allocating=False)


def _define(descriptor: type[Descriptor], table: Table, name: str, *, allocating: bool) -> None:
    arguments = arguments_of(table, allocating=allocating)
    overload = Overload(descriptor, table, arguments, allocating=allocating)
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
