"""Makes parameters and gradients of any strides contiguous, as plans need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import torch

from planq.errors import ArgumentError

_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether memory holds the elements in C order, and not lazily negated."""
    return tensor.is_contiguous() and not tensor.is_neg()


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient in C order; the gradient itself if it is that already."""
    if not gradient.requires_grad and is_plain(gradient):
        return gradient
    return gradient.detach().resolve_neg().contiguous()


def apart(params: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> set[torch.Tensor]:
    """Those of ``others``, which are not plain, that may share elements with one of ``params``.

    They have to take their steps one after another, as in torch. If their copies were written back
    together, only one update of a shared element would remain.
    """
    if not others:
        return set()
    users = Counter(p.untyped_storage().data_ptr() for p in params)
    return {p for p in others if users[p.untyped_storage().data_ptr()] > 1}


def is_usual(p: torch.Tensor, gradient: torch.Tensor) -> bool:
    """A fast check: whether nothing is to be refused, and the parameter needs no copy."""
    return (
        p.layout is gradient.layout is torch.strided
        and p.dtype in _DTYPES
        and gradient.dtype in _DTYPES
        and is_plain(p)
    )


def check(where: str, p: torch.Tensor, gradient: torch.Tensor) -> None:
    """Refuses parameters and gradients that the optimizers do not support.

    Raises:
        ArgumentError: The parameter or its gradient is sparse, complex, integer or float64, or
            elements of the parameter share memory.
    """
    for name, each in ((where, p), (f"{where}.grad", gradient)):
        if each.layout is not torch.strided:
            advice = "planq.torch.optim takes no sparse gradients or parameters"
            raise ArgumentError(name, "a dense tensor", f"one of {each.layout}", advice)
        if each.dtype not in _DTYPES:
            raise ArgumentError(name, "float16, bfloat16 or float32", str(each.dtype))
    if not p.is_contiguous() and _overlaps_itself(p):
        expected = "strides under which no two elements share memory"
        raise ArgumentError(where, expected, f"strides {p.stride()}")


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements share memory: by strides if they are nested, else by counting."""
    steps = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    reach, nested = 0, True
    for stride, extent in steps:
        if extent == 0:
            return False
        if extent > 1:
            nested = nested and stride > reach
            reach += stride * (extent - 1)
    if nested:
        return False
    places = torch.arange(reach + 1, device="cpu").as_strided(tensor.shape, tensor.stride())
    return bool((torch.bincount(places.reshape(-1)) > 1).any())
