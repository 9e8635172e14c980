"""The processors as a machine to be measured."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np

import planq
from harness.core.cases import Case
from harness.core.timing import Effort, summarize
from harness.core.workload import Arena, Launch, Rate, Timing, copies_for, nearest_mix
from harness.native.native import CopyLoop, processor_name

INPUT_ARENA: Final = 1200 << 20
OUTPUT_ARENA: Final = 640 << 20
PARAMETER_ARENA: Final = 32 << 20
SAMPLE_SECONDS: Final = 1e-3
MALLOPT_TRIM_THRESHOLD, MALLOPT_MMAP_MAX = -1, -4


def _keep_freed_memory() -> None:
    """Lets peers that allocate results find the pages of the last ones, as on a GPU."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_MAX, 0)
        mallopt(MALLOPT_TRIM_THRESHOLD, 2**31 - 1)


class HostMachine:
    """The host backend on a number of threads."""

    distinct = 1 << 22
    large_bytes = 1_000_000_000

    def __init__(self, effort: Effort, threads: int | None) -> None:
        _keep_freed_memory()
        self.stream: Any = planq.HOST if threads is None else planq.host_stream(threads)
        self.threads: int = self.stream.threads
        self.effort = effort
        self.cold_bytes = 256_000_000
        self.inputs = Arena(INPUT_ARENA, "cpu")
        self.outputs = Arena(OUTPUT_ARENA, "cpu")
        self.parameters = Arena(PARAMETER_ARENA, "cpu")
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1))
        self._loop = CopyLoop(self.threads)

    def measure(self, launches: Sequence[Launch], traffic: int, graphs: bool = True) -> Timing:
        """Times launches by the monotonic clock, over rotated memory."""
        begin = time.perf_counter()
        for launch in launches:
            launch()
        estimate = (time.perf_counter() - begin) / len(launches)
        count = math.ceil(SAMPLE_SECONDS / max(estimate, 1e-7))
        samples: list[float] = []
        for sample in range(self.effort.samples(count * estimate)):
            begin = time.perf_counter()
            for index in range(count):
                launches[(sample * count + index) % len(launches)]()
            samples.append(time.perf_counter() - begin)
        return summarize(samples, count, "clock")

    def settle(self, seconds: float) -> None:
        """Touches all memory, so that no page is new while something is timed."""
        self.inputs.fill("bfloat16", self.distinct)
        self.outputs.bytes.fill_(1)

    # Rates are measured anew for each case, right after it: processors are shared, and drift.

    def ceiling(self, reads: int, writes: int, streams: int = 1) -> Rate:
        """A loop in C++ with the nearest mix and this total, from one array."""
        mix = nearest_mix(reads, writes)
        count = (reads + writes) // sum(mix)
        source, target = self.inputs.bytes.data_ptr(), self.outputs.bytes.data_ptr()
        sizes = [count * width for width in mix]
        launches = [
            partial(self._loop, mix, source + copy * sizes[0], target + copy * sizes[1], count)
            for copy in range(copies_for(self, *sizes))
        ]
        timing = self.measure(launches, reads + writes)
        what = f"read {mix[0]} : write {mix[1]} in a loop, {self.threads} threads"
        return Rate(sum(sizes) / timing.seconds, timing.us, what)

    def copy(self, nbytes: int) -> Rate:
        """``numpy.copyto`` of half the bytes to the other half, split over the same threads."""
        half = nbytes // 2
        launches = [self._copy_launch(half, copy) for copy in range(copies_for(self, half, half))]
        timing = self.measure(launches, nbytes)
        what = f"numpy.copyto on {self.threads} threads"
        return Rate(2 * half / timing.seconds, timing.us, what)

    def _copy_launch(self, half: int, copy: int) -> Launch:
        source = self.inputs.bytes.numpy()[copy * half : (copy + 1) * half]
        target = self.outputs.bytes.numpy()[copy * half : (copy + 1) * half]
        parts = list(
            zip(
                np.array_split(target, self.threads),
                np.array_split(source, self.threads),
                strict=True,
            )
        )

        def launch() -> None:
            running = [self._pool.submit(np.copyto, *part) for part in parts[1:]]
            np.copyto(*parts[0])
            for future in running:
                future.result()

        return launch

    def bare(self, case: Case) -> Timing | None:
        """There is no bare kernel on the host."""
        return None

    def peak(self) -> float | None:
        """Processors differ too much."""
        return None

    def facts(self) -> dict[str, Any]:
        """The processor."""
        return {
            "name": "host",
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "threads": self.threads,
        }
