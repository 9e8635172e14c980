"""Hooks of DistributedDataParallel: what each does with one bucket of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import planq.distributed as pd
from harness.core.ranks import Ranks

BUCKET: Final = ((1024, 4096), (512, 4096), (4096,), (4096,))
"""What DDP puts together: 25 MiB of float32 at most."""
FIRST_ITERATION: Final = 2
"""The first one that PowerSGD factors; it refuses earlier ones."""


class Bucket:
    """Has what hooks ask of torch's GradBucket, which no program can make."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], device: torch.device) -> None:
        counts = [math.prod(shape) for shape in shapes]
        self._buffer = torch.randn(sum(counts), device=device)
        parts = self._buffer.split(counts)
        self._gradients = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        self._parameters = [torch.nn.Parameter(torch.empty_like(each)) for each in self._gradients]

    @property
    def elements(self) -> int:
        """Of all gradients."""
        return self._buffer.numel()

    def module(self) -> torch.nn.Module:
        """The model whose parameters these are."""
        made = torch.nn.Module()
        for place, parameter in enumerate(self._parameters):
            made.register_parameter(f"p{place}", parameter)
        return made

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def gradients(self) -> list[torch.Tensor]:
        return self._gradients

    def parameters(self) -> list[torch.nn.Parameter]:
        return self._parameters


def hooks_of(bucket: Bucket) -> dict[str, Callable[[Any], Any]]:
    """By their names: torch's own first, of which the first sends float32."""
    found: dict[str, Callable[[Any], Any]] = {
        "torch float32": partial(default_hooks.allreduce_hook, dist.group.WORLD),
        "torch bf16_compress_hook": partial(default_hooks.bf16_compress_hook, None),
        "torch fp16_compress_hook": partial(default_hooks.fp16_compress_hook, None),
    }
    for rank in (1, 4):
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=FIRST_ITERATION
        )
        found[f"torch PowerSGD rank {rank}"] = partial(powerSGD_hook.powerSGD_hook, state)
    for dtype in ("int8", "int4"):
        for feedback in (False, True):
            own = pd.QuantizedAllReduceState(bucket.module(), error_feedback=feedback, dtype=dtype)
            name = f"planq {dtype}{', error feedback' if feedback else ''}"
            found[name] = partial(pd.quantized_all_reduce_hook, own)
    return found


def measure(ranks: Ranks, blocks: int) -> list[dict[str, Any]]:
    """Entries of the record, whose lines are printed by the first rank."""
    bucket, found = Bucket(BUCKET, ranks.device), []
    for name, hook in hooks_of(bucket).items():
        times = ranks.times(lambda hook=hook: hook(bucket).wait(), blocks)
        found.append({"name": name, "elements": bucket.elements, **asdict(times)})
        if ranks.rank == 0:
            device = "" if times.device_us is None else f"{times.device_us:.1f}"
            print(f"{name:<44} {times.host_us:>10.1f} {device:>10} {times.us:>10.1f}", flush=True)
    return found
