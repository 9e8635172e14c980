"""The processes of a benchmark of collectives, and how they time a call."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from harness.core.cuda import device_facts
from harness.native.native import processor_name

CALLS: Final = 20
"""Fewer than the driver queues, so that none waits for the GPU."""
CYCLES_PER_SECOND: Final = 2e9
"""At most, of a GPU that sleeps."""

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of a call, on the slowest rank: medians of the blocks.

    Attributes:
        host_us: Until the call returns, with nothing before it that it could wait for.
        device_us: Between events, with all calls enqueued before the first begins; None: there is
            no device.
        us: Of one call behind the other, until the last has ended.
        samples: How many blocks.
        calls: In each block.
    """

    host_us: float
    device_us: float | None
    us: float
    samples: int
    calls: int


class Ranks:
    """The processes of this run, and their devices."""

    def __init__(self, backend: str) -> None:
        self.rank, self.on_gpu = int(os.environ["RANK"]), backend == "nccl"
        self.device = torch.device("cpu")
        options: dict[str, Any] = {}
        if self.on_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
            options["device_id"] = self.device
        else:
            torch.set_num_threads(1)
        dist.init_process_group(backend, **options)
        self.count = dist.get_world_size()
        if self.on_gpu:
            make: Any = torch.cuda.Stream
            torch.cuda.set_stream(make())

    def facts(self) -> dict[str, Any]:
        """The machine, as records of other benchmarks name it."""
        if self.on_gpu:
            nccl = ".".join(map(str, torch.cuda.nccl.version()))
            return {**device_facts(self.device.index), "ranks": self.count, "nccl": nccl}
        return {"name": "host", "processor": processor_name(), "threads": 1, "ranks": self.count}

    def slowest(self, value: float) -> float:
        """The largest of all ranks."""
        held = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return float(held.item())

    def wait(self) -> None:
        """Until every rank has come here, and its device is idle."""
        self.slowest(0.0)
        self.synchronize()

    def synchronize(self) -> None:
        """Until the device is idle."""
        if self.on_gpu:
            torch.cuda.synchronize()

    # --- time, in seconds a call

    def host(self, call: Call, calls: int) -> float:
        """Until calls return."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    def whole(self, call: Call, calls: int) -> float:
        """Until the last has ended."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        self.synchronize()
        return (time.perf_counter() - begin) / calls

    def on_device(self, call: Call, calls: int, host: float) -> float:
        """Between events, behind a sleep as long as the host needs to enqueue everything."""
        self.wait()
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda._sleep(int(1.5 * host * (calls + 2) * CYCLES_PER_SECOND))
        call()  # devices that sleep for different times meet in it
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / calls

    def times(self, call: Call, blocks: int) -> Times:
        """All three, of the slowest rank."""
        for _ in range(3):  # connections, plans and addresses
            self.slowest(self.whole(call, 1))
        each = self.slowest(self.whole(call, 3))
        calls = max(2, min(CALLS, int(0.05 / max(each, 1e-9))))
        hosts = [self.slowest(self.host(call, calls)) for _ in range(blocks)]
        wholes = [self.slowest(self.whole(call, calls)) for _ in range(blocks)]
        device = None
        if self.on_gpu:
            longest = max(hosts)
            found = [self.slowest(self.on_device(call, calls, longest)) for _ in range(blocks)]
            device = round(statistics.median(found) * 1e6, 2)
        host, whole = (round(statistics.median(found) * 1e6, 2) for found in (hosts, wholes))
        return Times(host, device, whole, blocks, calls)
