"""Processes with a group of gloo or NCCL, which run the functions of jobs.py together."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SIZE = 6
_SECONDS = 120


class Team:
    """As many ranks as SIZE, or as there are GPUs asked for, one for each."""

    def __init__(self, store: str, gpus: int = 0) -> None:
        """Starts them; they import torch once."""
        # A process that knows the driver of a GPU cannot be forked.
        context: Any = multiprocessing.get_context("spawn" if gpus else "forkserver")
        context.set_forkserver_preload(["planq.distributed"])
        self._members = []
        for rank in range(gpus or SIZE):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, store, theirs, gpus), daemon=True)
            process.start()
            self._members.append((process, ours))

    def run(self, job: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """What each rank returns; ``job`` is a function of jobs.py."""
        for _, pipe in self._members:
            pipe.send((job.__name__, args, options))
        results = []
        for process, pipe in self._members:
            assert pipe.poll(_SECONDS), f"rank {len(results)} hangs, exit code {process.exitcode}"
            results.append(pipe.recv())
        for failed, result in results:
            assert not failed, result
        return [result for _, result in results]

    def end(self) -> None:
        """Ends them."""
        for process, pipe in self._members:
            pipe.send(None)
            process.join(10)
            process.terminate()


def join(rank: int, size: int, store: str, gpus: int, **options: Any) -> Any:
    """Enters the group of all ranks.

    Returns:
        jobs.py, whose tensors are where this rank's have to be.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    options |= {"init_method": f"file://{store}", "rank": rank, "world_size": size}
    jobs: Any = importlib.import_module("collectives.jobs")
    if gpus:
        jobs.DEVICE = torch.device("cuda", rank)
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=jobs.DEVICE, **options)
    else:
        dist.init_process_group("gloo", **options)
    return jobs


def _work(rank: int, store: str, pipe: Connection, gpus: int) -> None:
    jobs = join(rank, gpus or SIZE, store, gpus)
    import torch.distributed as dist

    while (order := pipe.recv()) is not None:
        name, args, options = order
        try:
            pipe.send((False, getattr(jobs, name)(*args, **options)))
        except BaseException:
            pipe.send((True, traceback.format_exc()))
    dist.destroy_process_group()
