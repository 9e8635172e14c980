"""Calls inside of ``torch.func``'s transforms, where no derivative may be lost either.

Inside of ``grad``, ``vjp`` and ``jvp``, an operand is a wrapper of the transform's level. A kernel
sees the wrapped tensor, without its derivative. So the level is checked before it hands a call
down. Only calls inside of a transform come here; others pay nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from planq.torch._calls import Overload, gradient_error, has_derivative

KEY: Final = "FuncTorchDynamicLayerBackMode"
_FUNCTORCH: Final[Any] = torch._C._functorch
_NATIVE: Final[Any] = torch._C


def level_of(overload: Overload, name: str) -> Callable[..., Any]:
    """Returns what torch calls when a transform's level hands a call down to the next one.

    It raises ArgumentError if the level differentiates with respect to an operand, as the call
    would lose that derivative.
    """

    @functools.cache
    def operator() -> Any:
        packet, _, which = name.partition(".")
        return getattr(getattr(torch.ops.planq, packet), which or "default")

    def handed_down(*args: Any) -> Any:
        interpreter = retrieve_current_functorch_interpreter()
        level = interpreter.level()
        for argument, given in zip(overload.arguments, args, strict=False):
            for member in given if isinstance(given, list) else (given,):
                if isinstance(member, torch.Tensor) and has_derivative(member):
                    raise gradient_error(argument.of or argument.name)
        below = [_each(_unwrapped, given, level) for given in args]
        with interpreter.lower(), _outside():
            results = operator()(*below)
        return _each(_wrapped, results, level) if is_differential(interpreter) else results

    return handed_down


def is_differential(interpreter: Any) -> bool:
    """Whether the level differentiates, rather than batches."""
    kinds = _FUNCTORCH.TransformType
    return interpreter.key() in (kinds.Grad, kinds.Jvp)


def _each(change: Callable[[torch.Tensor, int], torch.Tensor], given: Any, level: int) -> Any:
    """Applies a function to tensors, also inside of lists and tuples."""
    if isinstance(given, list | tuple):
        return type(given)(_each(change, member, level) for member in given)
    return change(given, level) if isinstance(given, torch.Tensor) else given


def _unwrapped(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """The tensor inside of a wrapper of this level; other tensors as they are."""
    if _FUNCTORCH.maybe_get_level(tensor) != level:
        return tensor
    inner: torch.Tensor = _FUNCTORCH._unwrap_for_grad(tensor, level)
    return inner


def _wrapped(tensor: torch.Tensor, level: int) -> torch.Tensor:
    outer: torch.Tensor = _FUNCTORCH._wrap_for_grad(tensor, level)
    return outer


@functools.cache
def _autocast_keys() -> Any:
    names = [name for name in _NATIVE.DispatchKey.__members__ if name.startswith("Autocast")]
    keys = _NATIVE.DispatchKeySet(_NATIVE.DispatchKey.__members__[names[0]])
    for name in names[1:]:
        keys = keys.add(_NATIVE.DispatchKey.__members__[name])
    return keys


def _outside() -> Any:
    """A guard that restores the dispatcher's state outside of the level, but for autocast keys."""
    included = _NATIVE._dispatch_tls_local_include_set()
    excluded = _NATIVE._dispatch_tls_local_exclude_set()
    batches = _NATIVE.DispatchKey.FuncTorchVmapMode
    return _NATIVE._ForceDispatchKeyGuard(included.remove(batches), excluded & _autocast_keys())
