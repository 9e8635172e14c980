"""Where a network runs: a stream, one block of memory, and what goes in and out.

A network of plans needs little of a machine, and the same of a host and of a GPU::

    machine = machine_of("cuda")                       # or "host", "cuda:1"
    places = Places({"hidden": ((512, 640), "float32"), "weight": (blocks.shape, "uint8"), ...})
    held = places.on(machine)                          # all that the network needs, once
    machine.put(held["weight"], blocks)
    launch = plan.bind(None, planq.XArgs(input=held["hidden"], weight=held["weight"], ...))
    step = machine.captured(lambda: launch(machine.stream))
    machine.fill(ids, array)                           # before each step
    step()
    machine.get(held["hidden"])

:class:`planq.networks.Places` says where tensors lie in the block. A tensor of a host is a NumPy
array. A tensor of a GPU is a :class:`CudaTensor`, which planq takes as an operand. Both have
``shape``, ``dtype``, ``reshape`` and slices of rows and of columns.

A GPU needs the package ``cuda-python`` (``pip install 'planq[cuda]'``), and nothing else.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import planq
from planq._nearest import did_you_mean
from planq.driver import checked, current, driver
from planq.errors import ArgumentError, PlanqError
from planq.executors import DeviceError, require_device
from planq.networks.tensors import CudaTensor, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Shape = Sequence[int]

Array = np.ndarray[Any, Any]
ALIGNMENT = planq.WORKSPACE_ALIGNMENT
# Copies that wait for the GPU at a time, of each size of pinned memory.
MOST_WAITING = 64
LEAST_PINNED = 4096  # bytes


class Machine(Protocol):
    """A host or a GPU.

    Attributes:
        name: ``host`` or ``cuda:N``.
        nbytes: The bytes of its block; None: there is none yet.
        stream: What plans take.
        graphs: Whether :meth:`captured` makes graphs, which are worth few numbers of rows, and
            whether launches return before they have run.
    """

    name: str
    nbytes: int | None
    stream: Any
    graphs: bool

    def reserve(self, nbytes: int) -> None:
        """Allocates the one block of memory that a network lives in. It does not grow.

        Raises:
            ArgumentError: There is one already. Each network has a machine of its own.
            PlanqError: There is not so much memory.
        """

    def tensor(self, offset: int, shape: Shape, dtype: Any) -> Any:
        """A tensor without gaps, so many bytes behind the beginning of the block.

        What it holds is undefined until somebody writes it.

        Raises:
            ArgumentError: The block ends before it, or is not reserved.
        """

    def put(self, tensor: Any, array: Array) -> None:
        """Copies an array, such as a weight, into a tensor, and waits."""

    def fill(self, tensor: Any, array: Array) -> None:
        """Copies an array into a tensor, after what the stream has to do before.

        It does not wait: the array may change afterwards. It is for the small inputs of a step.
        """

    def copy(self, target: Any, source: Any) -> None:
        """Copies a tensor without gaps into another one, in the order of the stream."""

    def fetch(self, tensor: Any) -> Callable[[], Array]:
        """Begins to copy a tensor to the host, as the stream leaves it here.

        Returns:
            What waits for the copy, and returns it. Call it once.
        """

    def get(self, tensor: Any) -> Array:
        """Copies a tensor to the host, and waits."""

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """What runs the launches of ``run`` again, as often as it is called.

        Args:
            run: Launches plans on :attr:`stream`, and does nothing else. A GPU makes a CUDA graph
                of it, whose launches are not executed before it is called.
        """


def machine_of(name: str, threads: int | None = None) -> Machine:
    """A machine by its name.

    Args:
        name: ``host``, ``cuda`` for the first GPU, or ``cuda:N``.
        threads: Of a host; None leaves it to planq. The bits do not depend on it.

    Raises:
        DeviceError: There is no such machine here, or a package is missing.
        ArgumentError: Threads of a GPU.
        StreamError: A number of threads that no stream has.
    """
    if name == "host":
        return HostMachine(threads)
    matched = re.fullmatch(r"cuda(?::([0-9]{1,9}))?", name)
    if matched is None:
        hint = did_you_mean(name, ("host", "cuda", "cuda:0"))
        raise DeviceError(f"device: expected host, cuda or cuda:N, got {name!r}{hint}")
    if threads is not None:
        raise ArgumentError("threads", "none for a GPU", str(threads))
    return CudaMachine(int(matched[1] or 0))


class _Reserving:
    """The block of a machine: its bytes, once it has one."""

    nbytes: int | None = None

    def _require_none(self) -> None:
        if self.nbytes is not None:
            raise ArgumentError("memory", "one block, of one network", "another")

    def _require_inside(self, offset: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        if self.nbytes is None:
            raise ArgumentError("memory", "a block that `reserve` has made", "none")
        nbytes = math.prod(shape) * dtype.itemsize
        if not 0 <= offset <= self.nbytes - nbytes:
            expected = f"{nbytes} bytes inside of a block of {self.nbytes}"
            raise ArgumentError("offset", expected, str(offset))


# --- A host


class HostMachine(_Reserving):
    """This processor. Its tensors are NumPy arrays, and plans have run when they return."""

    name, graphs = "host", False

    def __init__(self, threads: int | None = None) -> None:
        self.stream: Any = planq.HOST if threads is None else planq.host_stream(threads=threads)

    def reserve(self, nbytes: int) -> None:
        """Allocates the block. A large one has large pages, as far as the system gives them.

        Small pages cost a third of the speed of a single token's products.
        """
        self._require_none()
        whole = np.empty(nbytes + ALIGNMENT, np.uint8)
        self._block = whole[-whole.ctypes.data % ALIGNMENT :][:nbytes]
        self.nbytes = nbytes

    def tensor(self, offset: int, shape: Shape, dtype: Any) -> Array:
        """An array in the block."""
        kind = np.dtype(dtype)
        self._require_inside(offset, shape, kind)
        own = self._block[offset:][: math.prod(shape) * kind.itemsize]
        made: Array = own.view(kind).reshape(shape)
        return made

    def put(self, tensor: Array, array: Array) -> None:
        """Copies an array."""
        self.fill(tensor, array)

    def fill(self, tensor: Array, array: Array) -> None:
        """Copies an array."""
        _require_alike(tensor, array)
        tensor[...] = array

    def copy(self, target: Array, source: Array) -> None:
        """Copies a tensor."""
        _require_alike(target, source)
        target[...] = source

    def fetch(self, tensor: Array) -> Callable[[], Array]:
        """Copies a tensor."""
        found = tensor.copy()
        return lambda: found

    def get(self, tensor: Array) -> Array:
        """Copies a tensor."""
        return tensor.copy()

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """The same."""
        return run


# --- A GPU


class CudaMachine(_Reserving):
    """A GPU, by calls of the CUDA driver.

    Args:
        index: Of the CUDA device.

    Attributes:
        index: The same.
        pinned: Memory of the host for copies.

    Raises:
        DeviceError: There is no such device, or the package is missing.
    """

    graphs = True

    def __init__(self, index: int) -> None:
        self.name, self.index = f"cuda:{index}", index
        require_device(index)
        try:
            driver()
        except ModuleNotFoundError as error:
            needs = "needs the package 'cuda-python': pip install 'planq[cuda]'"
            raise DeviceError(f"device {self.name} {needs}") from error
        with current(index) as calls:
            apart = int(calls.CUstream_flags.CU_STREAM_NON_BLOCKING)
            (stream,) = checked(calls.cuStreamCreate(apart), f"{self.name}: a stream")
        self._stream = int(stream)
        _destroyed_with(self, index, "cuStreamDestroy", stream)
        self.stream: Any = planq.cuda_stream(self._stream, index)
        self.pinned = _PinnedPool(index, self._stream)

    def reserve(self, nbytes: int) -> None:
        """Allocates the block."""
        self._require_none()
        self._block = _Block(self.index, nbytes)
        self.nbytes = nbytes

    def tensor(self, offset: int, shape: Shape, dtype: Any) -> CudaTensor:
        """A tensor in the block."""
        kind = np.dtype(dtype)
        self._require_inside(offset, shape, kind)
        block = self._block
        return CudaTensor(block, block.pointer + offset, shape, kind, Place(self.index))

    def put(self, tensor: CudaTensor, array: Array) -> None:
        """Copies an array into a tensor, and waits."""
        _require_alike(tensor, array)
        _require_dense(tensor)
        whole = np.ascontiguousarray(array)
        with current(self.index) as calls:
            self._enqueue(calls, tensor.pointer, whole.ctypes.data, whole.nbytes)
            self._wait(calls)

    def fill(self, tensor: CudaTensor, array: Array) -> None:
        """Copies an array by way of pinned memory, which is used again when the copy is done."""
        _require_alike(tensor, array)
        _require_dense(tensor)
        if not tensor.nbytes:
            return
        with current(self.index) as calls:
            pinned = self.pinned.take(calls, tensor.nbytes)
            pinned.view(tensor.shape, tensor.dtype)[...] = array
            self._enqueue(calls, tensor.pointer, pinned.address, tensor.nbytes)
            self.pinned.give(calls, pinned)

    def copy(self, target: CudaTensor, source: CudaTensor) -> None:
        """Copies a tensor on the GPU."""
        _require_alike(target, source)
        _require_dense(target)
        _require_dense(source)
        with current(self.index) as calls:
            self._enqueue(calls, target.pointer, source.pointer, target.nbytes)

    def fetch(self, tensor: CudaTensor) -> Callable[[], Array]:
        """Enqueues a copy to pinned memory, and an event behind it."""
        _require_rows(tensor)
        if not tensor.nbytes:
            return lambda: np.empty(tensor.shape, tensor.dtype)
        with current(self.index) as calls:
            pinned = self.pinned.take(calls, tensor.nbytes)
            for offset, pointer, nbytes in _rows(tensor):
                self._enqueue(calls, pinned.address + offset, pointer, nbytes)
            pinned.record(calls, self._stream)
        return _Fetched(self, pinned, tensor)

    def get(self, tensor: CudaTensor) -> Array:
        """Copies a tensor to the host, and waits."""
        return self.fetch(tensor)()

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of the launches."""
        what = f"{self.name}: a CUDA graph of a step"
        with current(self.index) as calls:
            mode = calls.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            checked(calls.cuStreamBeginCapture(self._stream, mode), what)
            try:
                run()
            except BaseException:
                # The capture has to end; what it made is of no use.
                with suppress(PlanqError):
                    (graph,) = checked(calls.cuStreamEndCapture(self._stream), what)
                    calls.cuGraphDestroy(graph)
                raise
            (graph,) = checked(calls.cuStreamEndCapture(self._stream), what)
            try:
                (made,) = checked(calls.cuGraphInstantiate(graph, 0), what)
            finally:
                calls.cuGraphDestroy(graph)
            found = _Graph(self, made)
            checked(calls.cuGraphUpload(made, self._stream), what)
        return found

    def _enqueue(self, calls: Any, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            what = f"{self.name}: a copy of {nbytes} bytes"
            checked(calls.cuMemcpyAsync(target, source, nbytes, self._stream), what)

    def _wait(self, calls: Any) -> None:
        checked(calls.cuStreamSynchronize(self._stream), f"{self.name}: work of the stream")


class _Graph:
    """A CUDA graph that is ready to be launched; it lives as long as this object."""

    def __init__(self, machine: CudaMachine, made: Any) -> None:
        self._machine, self._made = machine, made
        _destroyed_with(self, machine.index, "cuGraphExecDestroy", made)

    def __call__(self) -> None:
        """Launches it."""
        machine = self._machine
        with current(machine.index) as calls:
            answer = calls.cuGraphLaunch(self._made, int(machine.stream.handle))
            checked(answer, f"{machine.name}: the launch of a step")


class _Block:
    """Memory of a GPU, freed with this object."""

    def __init__(self, index: int, nbytes: int) -> None:
        with current(index) as calls:
            answer = calls.cuMemAlloc(max(nbytes, 1))
            (pointer,) = checked(answer, f"cuda:{index}: the allocation of {nbytes} bytes")
        self.pointer = int(pointer)
        _destroyed_with(self, index, "cuMemFree", self.pointer)


class _Pinned:
    """Pinned memory of the host, and an event that says when a copy is done with it."""

    def __init__(self, calls: Any, index: int, capacity: int) -> None:
        (address,) = checked(
            calls.cuMemHostAlloc(capacity, 0), f"cuda:{index}: {capacity} bytes of pinned memory"
        )
        self.address, self.capacity = int(address), capacity
        _destroyed_with(self, index, "cuMemFreeHost", self.address)
        kind = int(calls.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        (self._event,) = checked(calls.cuEventCreate(kind), f"cuda:{index}: an event")
        _destroyed_with(self, index, "cuEventDestroy", self._event)

    def view(self, shape: Shape, dtype: Any) -> Array:
        """It as an array."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        memory = (ctypes.c_uint8 * nbytes).from_address(self.address)
        found: Array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
        return found

    def record(self, calls: Any, stream: int) -> None:
        """Puts the event behind what the stream has to do."""
        checked(calls.cuEventRecord(self._event, stream), "an event of a copy")

    def is_free(self, calls: Any) -> bool:
        """Whether the last copy is done."""
        (error,) = calls.cuEventQuery(self._event)
        return int(error) == 0

    def wait(self, calls: Any) -> None:
        """Waits for the last copy."""
        checked(calls.cuEventSynchronize(self._event), "a copy or the step before it")


class _Fetched:
    """A copy on its way to the host. Its memory goes back when it is read, or when nobody will."""

    def __init__(self, machine: CudaMachine, pinned: _Pinned, tensor: CudaTensor) -> None:
        self._machine, self._pinned = machine, pinned
        self._shape, self._dtype = tensor.shape, tensor.dtype
        self._back = weakref.finalize(self, machine.pinned.give_back, pinned)
        self._back.atexit = False

    def __call__(self) -> Array:
        """Waits for the copy, and returns it; once."""
        with current(self._machine.index) as calls:
            self._pinned.wait(calls)
        found = self._pinned.view(self._shape, self._dtype).copy()
        self._back()
        return found


class _PinnedPool:
    """Pinned memory for copies, by its size: the one that was used first is used again first."""

    def __init__(self, index: int, stream: int) -> None:
        self._index, self._stream = index, stream
        self._pools: dict[int, deque[_Pinned]] = {}

    def take(self, calls: Any, nbytes: int) -> _Pinned:
        """Memory that no copy uses."""
        capacity = max(LEAST_PINNED, 1 << max(nbytes - 1, 0).bit_length())
        pool = self._pools.setdefault(capacity, deque())
        if pool and (len(pool) >= MOST_WAITING or pool[0].is_free(calls)):
            found = pool.popleft()
            found.wait(calls)
            return found
        return _Pinned(calls, self._index, capacity)

    def give(self, calls: Any, pinned: _Pinned) -> None:
        """Gives memory back, whose copy is enqueued."""
        pinned.record(calls, self._stream)
        self._pools[pinned.capacity].append(pinned)

    def give_back(self, pinned: _Pinned) -> None:
        """Gives memory back, whose event is recorded."""
        self._pools[pinned.capacity].appendleft(pinned)


def _require_alike(target: Any, source: Any) -> None:
    """Raises ArgumentError if shapes or types differ."""
    given, wanted = ((tuple(x.shape), x.dtype) for x in (source, target))
    if given != wanted:
        words = [f"{shape} {dtype.name}" for shape, dtype in (wanted, given)]
        raise ArgumentError("source of a copy", *words)


def _require_dense(tensor: CudaTensor) -> None:
    """Raises ArgumentError if there are gaps between elements."""
    if not tensor.is_dense:
        raise ArgumentError("tensor of a copy", "no gaps between elements", repr(tensor))


def _require_rows(tensor: CudaTensor) -> None:
    """Raises ArgumentError if a tensor is neither without gaps nor made of rows without gaps."""
    if not tensor.is_dense and (len(tensor.shape) != 2 or tensor.strides[-1] != 1):
        expected = "no gaps, or rows without gaps"
        raise ArgumentError("tensor of a copy", expected, repr(tensor))


def _rows(tensor: CudaTensor) -> Iterable[tuple[int, int, int]]:
    """The copies that a tensor takes: where each goes, where it comes from, and its bytes."""
    if tensor.is_dense:
        return [(0, tensor.pointer, tensor.nbytes)]
    nbytes, pitch = (n * tensor.dtype.itemsize for n in (tensor.shape[1], tensor.strides[0]))
    return [(i * nbytes, tensor.pointer + i * pitch, nbytes) for i in range(len(tensor))]


def _destroyed_with(owner: object, index: int, call: str, handle: Any) -> None:
    """Has the driver destroy something when its owner goes.

    At the end of the process the driver frees what is left.
    """
    weakref.finalize(owner, functools.partial(_destroy, index, call, handle)).atexit = False


def _destroy(index: int, call: str, handle: Any) -> None:
    with suppress(PlanqError), current(index) as calls:
        getattr(calls, call)(handle)
