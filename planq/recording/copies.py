"""Copies of operands into the ring: at once on the host, in the order of a stream on a GPU."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from planq.driver import checked, current
from planq.errors import PlanqError
from planq.recording.operands import ITEM_BYTES, Tensor, copy_from_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planq.recording.ring import Bytes, Ring

Pair = tuple["Bytes", Tensor]

_MOST_COPIES: Final = 1024
_PINNING: Final = threading.Lock()


class Copies(Protocol):
    """The copies of one run."""

    def begin(self, pairs: Iterable[Pair]) -> None:
        """Copies what the run reads."""

    def end(self, pairs: Iterable[Pair]) -> None:
        """Copies what the run has written; there may be nothing to copy."""

    def wait(self) -> None:
        """Waits until the copies are there; called on the thread that writes files."""


class HostCopies:
    """The run and the copies happen on the caller's thread, one after another."""

    def begin(self, pairs: Iterable[Pair]) -> None:
        """Copies what the run reads."""
        for target, tensor in pairs:
            copy_from_host(target, tensor)

    end = begin

    def wait(self) -> None:
        """They are there."""


class CudaCopies:
    """Copies to pinned memory on the run's own stream; the stream waits for nothing else."""

    def __init__(self, device: int, stream: int, ring: Ring) -> None:
        """Pins the ring if this is the first run on a GPU."""
        self._device, self._stream, self._event = device, stream, None
        _pin(device, ring)

    def begin(self, pairs: Iterable[Pair]) -> None:
        """Enqueues the copies of what the run reads."""
        with current(self._device) as driver:
            for target, tensor in pairs:
                _enqueue(driver, target, tensor, self._stream)

    def end(self, pairs: Iterable[Pair]) -> None:
        """Enqueues the copies of what the run has written, and an event after them."""
        with current(self._device) as driver:
            flags = driver.CUevent_flags
            kind = flags.CU_EVENT_DISABLE_TIMING | flags.CU_EVENT_BLOCKING_SYNC
            (self._event,) = checked(driver.cuEventCreate(int(kind)))
            try:
                for target, tensor in pairs:
                    _enqueue(driver, target, tensor, self._stream)
            finally:
                checked(driver.cuEventRecord(self._event, self._stream))

    def wait(self) -> None:
        """Waits for the event."""
        with current(self._device) as driver:
            checked(driver.cuEventSynchronize(self._event))
            checked(driver.cuEventDestroy(self._event))


def is_capturing(device: int, stream: int) -> bool:
    """Whether the stream is being captured in a graph, or cannot be asked since another one is."""
    with current(device) as driver:
        error, status = driver.cuStreamIsCapturing(stream)
        none = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return int(error) != 0 or status != none


def rows_of(tensor: Tensor) -> tuple[list[int], int, int, int]:
    """A tensor as copies of equally spaced rows.

    Returns:
        The offset in bytes at which each copy begins, and of all of them the bytes of a row, the
        number of rows and the bytes from one row to the next.

    Raises:
        PlanqError: It takes too many copies.
    """
    item = ITEM_BYTES[tensor.dtype]
    row, axes = item, list[tuple[int, int]]()
    for extent, stride in reversed(list(zip(tensor.shape, tensor.strides, strict=True))):
        if extent == 1:
            continue
        if not axes and stride * item == row:
            row *= extent
        else:
            axes.append((extent, stride * item))
    count, pitch = (1, row)
    if axes and axes[0][1] >= row:  # rows that overlap or run backwards are copied one by one
        count, pitch = axes.pop(0)
    if math.prod(extent for extent, _ in axes) > _MOST_COPIES:
        raise PlanqError(f"{tensor.name}: its strides take more than {_MOST_COPIES} copies")
    starts = [0]
    for extent, stride in axes:
        starts = [index * stride + start for index in range(extent) for start in starts]
    return starts, row, count, pitch


def _enqueue(driver: Any, target: Bytes, tensor: Tensor, stream: int) -> None:
    """Enqueues the copies that bring a tensor to the host without gaps."""
    if target.size == 0:
        return
    starts, row, count, pitch = rows_of(tensor)
    address = int(target.__array_interface__["data"][0])
    for start in starts:
        source = (tensor.pointer or 0) + start
        if count == 1:
            checked(driver.cuMemcpyAsync(address, source, row, stream))
        else:
            copy = driver.CUDA_MEMCPY2D()
            kinds = driver.CUmemorytype
            copy.srcMemoryType, copy.dstMemoryType = (
                kinds.CU_MEMORYTYPE_UNIFIED,
                kinds.CU_MEMORYTYPE_HOST,
            )
            copy.srcDevice, copy.srcPitch = source, pitch
            copy.dstHost, copy.dstPitch = address, row
            copy.WidthInBytes, copy.Height = row, count
            checked(driver.cuMemcpy2DAsync(copy, stream))
        address += row * count


def _pin(device: int, ring: Ring) -> None:
    """Makes the ring page-locked for every context, the first time."""
    with _PINNING:
        if ring.is_pinned:
            return
        address = int(ring.memory.__array_interface__["data"][0])
        with current(device) as driver:
            portable = driver.CU_MEMHOSTREGISTER_PORTABLE
            checked(driver.cuMemHostRegister(address, ring.memory.size, portable))
        ring.is_pinned = True
        # Before its pages go; at the end of the process the driver frees what is left.
        weakref.finalize(ring, _unpin, device, address, os.getpid()).atexit = False


def _unpin(device: int, address: int, process: int) -> None:
    if os.getpid() == process:  # a forked process has no CUDA
        with contextlib.suppress(PlanqError), current(device) as driver:
            driver.cuMemHostUnregister(address)
