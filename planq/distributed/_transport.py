"""The two transfers of torch.distributed, called as methods of a process group.

The functions of torch.distributed check their tensors, log and look groups up. That takes half as
long as all that planq does in a call, and planq's tensors are right by construction. So the methods
that these functions call are called directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, AllToAllOptions

# torch 2.13 has new names for them.
_NEW: Final = hasattr(dist.ProcessGroup, "all_to_all_single")
_TO_ALL: Final = "all_to_all_single" if _NEW else "alltoall_base"
_GATHER: Final = "all_gather_single" if _NEW else "_allgather_base"


def _options(make: Any, under_way: bool) -> Any:
    made = make()
    made.asyncOp = under_way
    return made


_TO_ALL_OPTIONS: Final = [_options(AllToAllOptions, each) for each in (False, True)]
_GATHER_OPTIONS: Final = [_options(AllgatherOptions, each) for each in (False, True)]


Transfer: TypeAlias = "Callable[[], Any]"
"""Starts a transfer, and returns what to wait for."""


def scatter(
    received: torch.Tensor, sent: torch.Tensor, group: dist.ProcessGroup, under_way: bool
) -> Transfer:
    """``all_to_all_single`` of equal parts; ``under_way`` makes it asynchronous."""
    call: Any = getattr(group, _TO_ALL)
    return functools.partial(call, received, sent, [], [], _TO_ALL_OPTIONS[under_way])


def gather(
    whole: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup, under_way: bool
) -> Transfer:
    """``all_gather_into_tensor``, likewise."""
    call: Any = getattr(group, _GATHER)
    return functools.partial(call, whole, own, _GATHER_OPTIONS[under_way])


def finish(work: Any) -> None:
    """Waits for a transfer that is not asynchronous."""
    if work is not None:  # some backends leave waiting to the caller
        work.wait()
