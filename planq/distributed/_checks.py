"""Checks of a collective's arguments, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist

from planq.errors import ArgumentError, shown
from planq.torch._calls import gradient_error

Op: TypeAlias = "dist.ReduceOp | dist.ReduceOp.RedOpType"
Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"


def is_mean(op: Op) -> bool:
    """Whether the sum is divided by the number of ranks.

    Raises:
        ArgumentError: The operation is neither SUM nor AVG.
    """
    if op is dist.ReduceOp.SUM or op == dist.ReduceOp.SUM:
        return False
    if op == dist.ReduceOp.AVG:
        return True
    raise ArgumentError("op", "ReduceOp.SUM or ReduceOp.AVG", shown(op))


def is_list(tensors: Tensors) -> bool:
    """Whether the argument is a list of tensors."""
    return not isinstance(tensors, torch.Tensor)


def name_of(name: str, tensors: Tensors, place: int) -> str:
    """The name of one tensor of an argument in error messages."""
    return f"{name}[{place}]" if is_list(tensors) else name


def checked(name: str, tensors: Any) -> list[torch.Tensor]:
    """Returns the tensors of an argument as a list, and checks them.

    Raises:
        ArgumentError: A tensor is none, has no memory, requires a gradient, is not contiguous, is a
            lazily negated view, or differs from the first in dtype or device.
    """
    if isinstance(tensors, torch.Tensor):
        _check(name, tensors)
        return [tensors]
    if not isinstance(tensors, (list, tuple)):
        raise ArgumentError(name, "a tensor, or a list of tensors", shown(tensors))
    for place, each in enumerate(tensors):
        if not isinstance(each, torch.Tensor):
            raise ArgumentError(f"{name}[{place}]", "a tensor", shown(each))
        first: torch.Tensor = tensors[0]
        if each.dtype != first.dtype or each.device != first.device:
            expected = f"{first.dtype} on {first.device}, as the first"
            raise ArgumentError(f"{name}[{place}]", expected, f"{each.dtype} on {each.device}")
        _check(f"{name}[{place}]", each)
    return list(tensors)


def _check(name: str, tensor: torch.Tensor) -> None:
    """Checks one tensor: launches use its address, so its elements have to lie there."""
    if not (tensor.is_cpu or tensor.is_cuda):
        raise ArgumentError(name, "a tensor on cpu or cuda", f"one on {tensor.device}")
    if not has_memory(tensor):
        raise ArgumentError(name, "a tensor with memory of its own", f"a {type(tensor).__name__}")
    if not tensor.is_contiguous():
        raise ArgumentError(name, "a contiguous tensor", f"strides {tensor.stride()}")
    if tensor.is_neg():
        advice = "its memory holds the values with the other sign; pass t.resolve_neg()"
        raise ArgumentError(name, "a tensor without a negative bit", "one with it", advice)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise gradient_error(name)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its elements lie at its address; a subclass with its own dispatch may have none."""
    kind: Any = type(tensor)
    return kind is torch.Tensor or kind.__torch_dispatch__ is _PLAIN.__torch_dispatch__


_PLAIN: Final[Any] = torch.Tensor


def outputs(
    out: Tensors | None,
    tensors: Tensors,
    given: list[torch.Tensor],
    shapes: Sequence[tuple[int, ...]],
    *,
    exact: bool = True,
) -> list[torch.Tensor]:
    """Returns the caller's outputs, or new ones.

    ``exact`` requires the caller's to have as many elements as the shapes.

    Raises:
        ArgumentError: The caller's outputs have another number, dtype, device or size.
    """
    if out is None:
        pairs = zip(given, shapes, strict=True)
        return [x.new_empty(s) if s != x.shape else torch.empty_like(x) for x, s in pairs]
    found = checked("out", out)
    if is_list(out) != is_list(tensors) or len(found) != len(given):
        expected = f"a list of {len(given)} tensors" if is_list(tensors) else "a tensor"
        raise ArgumentError("out", expected, f"{len(found)} tensors" if is_list(out) else "one")
    for place, (each, shape, from_) in enumerate(zip(found, shapes, given, strict=True)):
        if (each.dtype, each.device) != (from_.dtype, from_.device):
            expected = f"{from_.dtype} on {from_.device}, as what is given"
            actual = f"{each.dtype} on {each.device}"
            raise ArgumentError(name_of("out", out, place), expected, actual)
        count = torch.Size(shape).numel()
        if exact and each.numel() != count:
            raise ArgumentError(name_of("out", out, place), f"{count} elements", str(each.numel()))
    return found
