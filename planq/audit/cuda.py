"""A GPU as a place to audit, on memory and a stream of cuda.core's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from planq.audit.reference.formats import Array
from planq.executors import CudaExecutor


class CudaMemory:
    """Device bytes, aligned to 256."""

    def __init__(self, executor: CudaExecutor, nbytes: int) -> None:
        """Allocates without writing."""
        self._executor, self._size = executor, nbytes
        self._buffer: Any = executor.allocate(nbytes)
        self.pointer = int(self._buffer.handle)

    def upload(self, image: Array) -> None:
        """Overwrites the bytes, and waits."""
        self._executor.upload(self._buffer, image)

    def download(self) -> Array:
        """A copy of the bytes, after everything that was enqueued."""
        copied = np.empty(self._size, np.uint8)
        self._executor.download(copied, self._buffer)
        return copied

    def __del__(self) -> None:
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
