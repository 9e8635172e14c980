"""A GPU as a place to audit, on memory, streams and graphs of cuda.core's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import planq
from planq.audit.reference.formats import Array
from planq.executors import CudaExecutor
from planq.machine import driver_cuda_version, driver_version

# A load is so many products of square matrices of float16: a millisecond and more of an H100.
_LOAD_SIDE, _LOAD_PRODUCTS = 2048, 40


class CudaMemory:
    """Device bytes, aligned to 256."""

    def __init__(self, executor: CudaExecutor, nbytes: int) -> None:
        """Allocates without writing."""
        self._executor, self._size = executor, nbytes
        self._buffer: Any = None  # there is none if the next line fails
        self._buffer = executor.allocate(nbytes)
        self.pointer = int(self._buffer.handle)

    def upload(self, image: Array) -> None:
        """Overwrites the bytes, and waits."""
        self._executor.upload(self._buffer, image)

    def enqueue_copy(self, source: CudaMemory) -> None:
        """Overwrites the bytes with others of the device, in the stream's order."""
        self._buffer.copy_from(source._buffer, stream=self._executor.stream)

    def download(self) -> Array:
        """A copy of the bytes, after everything that was enqueued."""
        copied = np.empty(self._size, np.uint8)
        self._executor.download(copied, self._buffer)
        return copied

    # The default holds what is called after this module is gone.
    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # As it ends, the process gives everything back, in an order of its own.
        if self._buffer is not None and not ending():
            self._buffer.close(self._executor.stream)


@cache
def _executor(name: str) -> CudaExecutor:
    return CudaExecutor(int(name.partition(":")[2]))


@dataclass(frozen=True)
class Cuda:
    """A CUDA device; runs go to a stream that is not the default one."""

    name: str

    def allocate(self, nbytes: int) -> CudaMemory:
        """Aligned memory."""
        return CudaMemory(_executor(self.name), nbytes)

    def stream(self) -> Any:
        """The stream that all runs of a process go to."""
        return _executor(self.name).stream

    def synchronize(self) -> None:
        """Waits for the stream."""
        _executor(self.name).stream.sync()

    def captured(self, enqueue: Callable[[Any], None]) -> Callable[[], None]:
        """Captures what is enqueued on a stream; the result replays it on :meth:`stream`."""
        builder = _executor(self.name).new_stream().create_graph_builder()
        builder.begin_building("global")
        try:
            enqueue(builder.stream)
        except BaseException:
            with suppress(Exception):  # the capture is void, and says so, too
                builder.end_building()
            raise
        graph = builder.end_building().complete()
        return lambda: graph.launch(self.stream())

    def keep_busy(self) -> None:
        """Enqueues a load on another stream, which runs beside what comes next."""
        load_of(self.name).enqueue(other_stream(self.name))

    def delay(self) -> None:
        """Enqueues a load on :meth:`stream`, so that what comes next waits."""
        load_of(self.name).enqueue(self.stream())


@cache
def other_stream(name: str) -> Any:
    """A stream of a device beside that of its runs."""
    return _executor(name).new_stream()


class Load:
    """Products of matrices that keep a stream busy."""

    def __init__(self, device: Cuda) -> None:
        """Allocates the matrices, whatever they hold."""
        shape = (_LOAD_SIDE, _LOAD_SIDE)
        desc = planq.MatmulDescriptor(
            input_shape=shape, weight_shape=shape, input_dtype=planq.DType.FLOAT16
        )
        self._plan = planq.Plan.select(device.stream(), desc)
        specs = desc.operands()
        self._memory = {name: device.allocate(specs[name].nbytes) for name in specs}
        need = self._plan.workspace_size()
        self._scratch = device.allocate(need)
        self._workspace = (self._scratch.pointer, need) if need else None
        self._args = planq.MatmulArgs(
            **{
                name: (memory.pointer, shape, None, "float16", device.name)
                for name, memory in self._memory.items()
            }
        )

    def enqueue(self, stream: Any) -> None:
        """Enqueues the products."""
        for _ in range(_LOAD_PRODUCTS):
            self._plan.run(stream, self._workspace, self._args)


@cache
def load_of(name: str) -> Load:
    """The load of a device."""
    return Load(Cuda(name))


def facts(index: int) -> dict[str, str]:
    """What names a GPU and its driver: which one it is, and whether its memory corrects errors."""
    core: Any = importlib.import_module("cuda.core")
    device: Any = core.Device(index)
    device.set_current()
    return {
        "uuid": str(device.uuid),
        "pci": str(device.pci_bus_id),
        "ecc": "on" if device.properties.ecc_enabled else "off",
        "driver": driver_version(),
        "cuda": driver_cuda_version(),
    }
