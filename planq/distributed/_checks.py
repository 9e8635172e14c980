"""What collectives refuse before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from planq.errors import ArgumentError, shown
from planq.torch._calls import gradient_error

Op: TypeAlias = "dist.ReduceOp | dist.ReduceOp.RedOpType"
Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"


def is_mean(op: Op) -> bool:
    """Whether the sum is divided by the number of ranks.

    Raises:
        ArgumentError: The operation is another than SUM and AVG.
    """
    for known, mean in ((dist.ReduceOp.SUM, False), (dist.ReduceOp.AVG, True)):
        if op == known:
            return mean
    raise ArgumentError("op", "ReduceOp.SUM or ReduceOp.AVG", shown(op))


def is_list(tensors: Tensors) -> bool:
    """Whether there may be several."""
    return not isinstance(tensors, torch.Tensor)


def name_of(name: str, tensors: Tensors, place: int) -> str:
    """What an error calls one of them."""
    return f"{name}[{place}]" if is_list(tensors) else name


def checked(name: str, tensors: Any) -> list[torch.Tensor]:
    """A list of tensors that belong together.

    Raises:
        ArgumentError: One is no tensor, requires a gradient, is not contiguous or differs from the
            first in dtype or device.
    """
    one = isinstance(tensors, torch.Tensor)
    if not one and not isinstance(tensors, (list, tuple)):
        raise ArgumentError(name, "a tensor, or a list of tensors", shown(tensors))
    found = [tensors] if one else list(tensors)
    for place, each in enumerate(found):
        where = name if one else f"{name}[{place}]"
        if not isinstance(each, torch.Tensor):
            raise ArgumentError(where, "a tensor", shown(each))
        if each.device.type not in ("cpu", "cuda"):
            raise ArgumentError(where, "a tensor on cpu or cuda", f"one on {each.device}")
        if (each.dtype, each.device) != (found[0].dtype, found[0].device):
            expected = f"{found[0].dtype} on {found[0].device}, as the first"
            raise ArgumentError(where, expected, f"{each.dtype} on {each.device}")
        if not each.is_contiguous():
            raise ArgumentError(where, "a contiguous tensor", f"strides {each.stride()}")
        if each.requires_grad and torch.is_grad_enabled():
            raise gradient_error(where)
    return found


def outputs(
    out: Tensors | None,
    tensors: Tensors,
    given: list[torch.Tensor],
    shapes: Sequence[tuple[int, ...]],
    *,
    exact: bool = True,
) -> list[torch.Tensor]:
    """The caller's, or new ones; ``exact``: with as many elements as the shapes have.

    Raises:
        ArgumentError: The caller's are not what they have to be.
    """
    if out is None:
        return [each.new_empty(shape) for each, shape in zip(given, shapes, strict=True)]
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
