"""A CUDA driver whose memory is the host's, and which works only when somebody waits for it.

It knows streams, events, copies and graphs. Copies are the only work there is.
"""

from __future__ import annotations

import ctypes
import enum
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], object]

STREAM = 77


class Refusal(enum.IntEnum):
    """As the driver says it."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_READY = 600


class Driver(ModuleType):
    """As much of the driver as a machine asks for.

    Attributes:
        work: What the stream has to do, in order.
        done: How much of it is done.
        living: Handles that exist, and the kind of each.
        refuses: A call that fails.
    """

    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.work: list[Work] = []
        self.done = 0
        self.living: dict[Any, str] = {}
        self.buffers: dict[int, Any] = {}
        self.events: dict[int, int] = {}
        self.graphs: dict[int, list[Work]] = {}
        self.captured: list[Work] | None = None
        self.contexts: list[int] = []
        self.numbers = iter(range(1000, 10**6))
        self.refuses = ""

    def enqueue(self, work: Work) -> None:
        """What a launch does: into the graph that is made, or behind the stream's work."""
        (self.work if self.captured is None else self.captured).append(work)

    def finish(self, until: int | None = None) -> None:
        """Does the work before this point."""
        until = len(self.work) if until is None else until
        while self.done < until:
            self.work[self.done]()
            self.done += 1

    def answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        assert self.contexts, f"{name}: no context is current"
        if name == self.refuses:
            return (Refusal.CUDA_ERROR_OUT_OF_MEMORY, *(None for _ in values))
        return (Refusal.CUDA_SUCCESS, *values)

    def made(self, call: str, kind: str) -> tuple[Any, ...]:
        handle = next(self.numbers)
        if call != self.refuses:
            self.living[handle] = kind
        return self.answer(call, handle)

    def destroyed(self, call: str, handle: Any, kind: str) -> tuple[Any, ...]:
        assert self.living.pop(handle) == kind
        return self.answer(call)

    # --- Contexts

    def cuDeviceGet(self, index: int) -> tuple[Any, ...]:
        return Refusal.CUDA_SUCCESS, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return Refusal.CUDA_SUCCESS, device

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        self.contexts.append(context)
        return (Refusal.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return Refusal.CUDA_SUCCESS, self.contexts.pop()

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[Any, ...]:
        return self.answer("cuThreadExchangeStreamCaptureMode", mode)

    # --- Memory

    def allocated(self, call: str, nbytes: int, kind: str) -> tuple[Any, ...]:
        assert nbytes > 0
        memory = (ctypes.c_uint8 * (nbytes + 255)).from_buffer(bytearray(b"\xa5" * (nbytes + 255)))
        address = ctypes.addressof(memory)
        address += -address % 256
        if call != self.refuses:
            self.buffers[address], self.living[address] = memory, kind
        return self.answer(call, address)

    def freed(self, call: str, address: int, kind: str) -> tuple[Any, ...]:
        self.finish()
        del self.buffers[address]
        return self.destroyed(call, address, kind)

    def cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        return self.allocated("cuMemAlloc", nbytes, "memory")

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        return self.freed("cuMemFree", address, "memory")

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        return self.allocated("cuMemHostAlloc", nbytes, "pinned")

    def cuMemFreeHost(self, address: int) -> tuple[Any, ...]:
        return self.freed("cuMemFreeHost", address, "pinned")

    def cuMemcpyAsync(self, target: int, source: int, nbytes: int, stream: int) -> tuple[Any, ...]:
        assert self.living[stream] == "stream"
        assert nbytes > 0
        self.enqueue(lambda: ctypes.memmove(target, source, nbytes))
        return self.answer("cuMemcpyAsync")

    # --- Streams, events and graphs

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        assert flags == 1
        return self.made("cuStreamCreate", "stream")

    def cuStreamDestroy(self, stream: int) -> tuple[Any, ...]:
        return self.destroyed("cuStreamDestroy", stream, "stream")

    def cuStreamSynchronize(self, stream: int) -> tuple[Any, ...]:
        assert self.living[stream] == "stream"
        self.finish()
        return self.answer("cuStreamSynchronize")

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        assert flags == 2
        made = self.made("cuEventCreate", "event")
        self.events[made[1]] = 0
        return made

    def cuEventDestroy(self, event: int) -> tuple[Any, ...]:
        return self.destroyed("cuEventDestroy", event, "event")

    def cuEventRecord(self, event: int, stream: int) -> tuple[Any, ...]:
        assert self.living[stream] == "stream"
        self.events[event] = len(self.work)
        return self.answer("cuEventRecord")

    def cuEventQuery(self, event: int) -> tuple[Any, ...]:
        ready = self.events[event] <= self.done
        return (Refusal.CUDA_SUCCESS if ready else Refusal.CUDA_ERROR_NOT_READY,)

    def cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        self.finish(self.events[event])
        return self.answer("cuEventSynchronize")

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Any, ...]:
        assert (self.living[stream], mode, self.captured) == ("stream", 2, None)
        self.captured = []
        return self.answer("cuStreamBeginCapture")

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, ...]:
        made = self.made("cuStreamEndCapture", "graph")
        assert self.captured is not None
        self.graphs[made[1]], self.captured = self.captured, None
        return made

    def cuGraphDestroy(self, graph: int) -> tuple[Any, ...]:
        return self.destroyed("cuGraphDestroy", graph, "graph")

    def cuGraphInstantiate(self, graph: int, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        made = self.made("cuGraphInstantiate", "executable")
        self.graphs[next(reversed(self.living))] = self.graphs[graph]
        return made

    def cuGraphUpload(self, graph: int, stream: int) -> tuple[Any, ...]:
        assert (self.living[graph], self.living[stream]) == ("executable", "stream")
        return self.answer("cuGraphUpload")

    def cuGraphExecDestroy(self, graph: int) -> tuple[Any, ...]:
        return self.destroyed("cuGraphExecDestroy", graph, "executable")

    def cuGraphLaunch(self, graph: int, stream: int) -> tuple[Any, ...]:
        assert (self.living[graph], self.living[stream]) == ("executable", "stream")
        self.work += self.graphs[graph]
        return self.answer("cuGraphLaunch")
