"""Copies of a run on a GPU, with a driver that does nothing before somebody waits for it."""

from __future__ import annotations

import ctypes
import enum
import gc
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import planq
from planq import driver as calls
from planq.recording.copies import CudaCopies, is_capturing
from planq.recording.operands import Tensor
from planq.recording.ring import Ring

STREAM = 77
Work = Callable[[], object]


class Refusal(enum.IntEnum):
    """As the driver says it."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


class Driver(ModuleType):
    """As much of the driver as is asked. Calls need a current context and the relaxed mode."""

    CU_MEMHOSTREGISTER_PORTABLE = 1
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2, CU_EVENT_BLOCKING_SYNC=1)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_UNIFIED=4, CU_MEMORYTYPE_HOST=1)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0)
    CUDA_MEMCPY2D = SimpleNamespace

    def __init__(self) -> None:
        """Nothing is enqueued."""
        super().__init__("cuda.bindings.driver")
        self.work: list[Work] = []
        self.done = 0
        self.contexts: list[int] = []
        self.mode = 0
        self.capturing = 0
        self.events: dict[int, int] = {}
        self.pinned: dict[int, int] = {}
        self.refuses = ""

    def _answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        assert self.contexts, f"{name}: no context is current"
        if name == self.refuses:
            return (Refusal.CUDA_ERROR_INVALID_VALUE, *(None for _ in values))
        return (Refusal.CUDA_SUCCESS, *values)

    def cuDeviceGet(self, index: int) -> tuple[Any, ...]:
        """A handle."""
        return Refusal.CUDA_SUCCESS, 100 + index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        """A context."""
        return Refusal.CUDA_SUCCESS, 1000 + device

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        """Makes it current."""
        self.contexts.append(context)
        return (Refusal.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        """Makes the one before current."""
        return Refusal.CUDA_SUCCESS, self.contexts.pop()

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[Any, ...]:
        """Sets the mode, and returns the one before."""
        before, self.mode = self.mode, mode
        return self._answer("cuThreadExchangeStreamCaptureMode", before)

    def cuStreamIsCapturing(self, stream: int) -> tuple[Any, ...]:
        """As the test says."""
        assert stream == STREAM
        return self._answer("cuStreamIsCapturing", self.capturing)

    def cuMemHostRegister(self, address: int, size: int, flags: int) -> tuple[Any, ...]:
        """Once for each address."""
        assert address not in self.pinned
        assert (self.mode, flags) == (2, 1)
        if self.refuses != "cuMemHostRegister":
            self.pinned[address] = size
        return self._answer("cuMemHostRegister")

    def cuMemHostUnregister(self, address: int) -> tuple[Any, ...]:
        """Of an address that is registered."""
        del self.pinned[address]
        return self._answer("cuMemHostUnregister")

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> tuple[Any, ...]:
        """One row."""
        assert stream == STREAM
        self.work.append(lambda: ctypes.memmove(target, source, size))
        return self._answer("cuMemcpyAsync")

    def cuMemcpy2DAsync(self, copy: Any, stream: int) -> tuple[Any, ...]:
        """Rows that are no longer than their pitch."""
        assert stream == STREAM
        assert copy.WidthInBytes <= min(copy.srcPitch, copy.dstPitch)
        for row in range(copy.Height):
            target, source = (
                copy.dstHost + row * copy.dstPitch,
                copy.srcDevice + row * copy.srcPitch,
            )
            self.cuMemcpyAsync(target, source, copy.WidthInBytes, stream)
        return self._answer("cuMemcpy2DAsync")

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        """Without times, and waiting without spinning."""
        assert flags == 3
        event = 500 + len(self.events)
        self.events[event] = 0
        return self._answer("cuEventCreate", event)

    def cuEventRecord(self, event: int, stream: int) -> tuple[Any, ...]:
        """After everything that is enqueued."""
        assert stream == STREAM
        self.events[event] = len(self.work)
        return self._answer("cuEventRecord")

    def cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        """Does the work before the event."""
        for work in self.work[self.done : self.events[event]]:
            work()
        self.done = max(self.done, self.events[event])
        return self._answer("cuEventSynchronize")

    def cuEventDestroy(self, event: int) -> tuple[Any, ...]:
        """Once."""
        del self.events[event]
        return self._answer("cuEventDestroy")


def forget() -> None:
    """What the module has kept of a driver."""
    calls.driver.cache_clear()
    calls.context.cache_clear()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """In the place of the real one; every test leaves the thread as it was."""
    made = Driver()
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", ModuleType("cuda.bindings"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    forget()
    yield made
    gc.collect()
    forget()
    assert (made.contexts, made.mode) == ([], 0)
    assert made.pinned == {}


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    """An array of bytes as an operand."""
    return Tensor("x", -1, array.ctypes.data, "uint8", array.shape, array.strides, None)


def test_copies_are_made_in_the_order_of_the_stream(driver: Driver) -> None:
    """An operand that is updated in place is there as it was before, and as it was after."""
    ring = Ring(4096)
    operand = np.arange(24, dtype=np.uint8).reshape(4, 6)[:, :5]
    was = operand.tobytes()
    before, after = ring.memory[:20], ring.memory[64:84]
    made = CudaCopies(3, STREAM, ring)
    made.begin([(before, tensor_of(operand))])
    driver.work.append(lambda: operand.__iadd__(100))
    made.end([(after, tensor_of(operand))])
    assert not before.any()
    made.wait()
    assert before.tobytes() == was
    assert after.tobytes() == operand.tobytes()
    assert operand[0, 0] == 100
    assert driver.events == {}
    del made, before, after


def test_the_ring_is_pinned_once_and_as_long_as_it_lives(driver: Driver) -> None:
    """For every device."""
    ring = Ring(4096)
    CudaCopies(0, STREAM, ring)
    CudaCopies(1, STREAM, ring)
    assert driver.pinned == {ring.memory.ctypes.data: 4096}
    del ring
    gc.collect()
    assert driver.pinned == {}


@pytest.mark.parametrize(("status", "refuses"), [(1, ""), (0, "cuStreamIsCapturing")])
def test_a_stream_that_is_captured_is_seen(driver: Driver, status: int, refuses: str) -> None:
    """Or cannot be asked: another one is captured, and this is the default stream."""
    assert not is_capturing(0, STREAM)
    driver.capturing, driver.refuses = status, refuses
    assert is_capturing(0, STREAM)


@pytest.mark.parametrize("refuses", ["cuMemHostRegister", "cuMemcpyAsync", "cuEventCreate"])
def test_what_the_driver_refuses_is_an_error_of_planq(driver: Driver, refuses: str) -> None:
    """Of which the recorder makes a count."""
    ring, operand = Ring(4096), np.zeros(5, np.uint8)
    driver.refuses = refuses
    with pytest.raises(planq.PlanqError, match="CUDA_ERROR_INVALID_VALUE"):
        CudaCopies(0, STREAM, ring).end([(ring.memory[:5], tensor_of(operand))])
