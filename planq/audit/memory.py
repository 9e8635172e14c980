"""Guarded, poisoned, misaligned and strided operands on the host or on a GPU.

An operand lives inside a larger allocation. After a run the whole allocation is compared with what
it must be, so a single comparison finds wrong codes, writes before, after and between the rows, and
writes to inputs. Guards hide accesses beside an operand from a sanitizer, so `make sanitize` goes
without them: there operands end where their allocations end.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import planq
from planq.audit.reference.formats import STORAGE, Array, bits

GUARD = 0 if os.environ.get("PLANQ_UNGUARDED_OPERANDS") == "1" else 512
ALIGNMENT = 256
LIBRARY = ctypes.CDLL(None)
OUTPUT_POISON = 0xA5
INPUT_POISON = 0xFF
TensorTuple = tuple[int, tuple[int, ...], tuple[int, ...] | None, str, str]


class Memory(Protocol):
    """Bytes at a fixed, 256-byte aligned address."""

    pointer: int

    def upload(self, image: Array) -> None:
        """Overwrites the bytes."""

    def download(self) -> Array:
        """A copy of the bytes on the host."""


class Device(Protocol):
    """A place to run: its name, a stream, and memory."""

    def __hash__(self) -> int:
        """Devices are keys of caches."""

    @property
    def name(self) -> str:
        """As planq names it: `host` or `cuda:0`."""

    def allocate(self, nbytes: int) -> Memory:
        """Aligned memory."""

    def stream(self) -> Any:
        """A stream to run on."""

    def synchronize(self) -> None:
        """Waits for everything that was enqueued."""


class Allocation:
    """An aligned allocation of the C library's with nothing beside it, for NumPy to own."""

    def __init__(self, nbytes: int) -> None:
        """Allocates without writing."""
        self._memory = ctypes.c_void_p()
        alignment, size = ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(nbytes)
        if LIBRARY.posix_memalign(ctypes.byref(self._memory), alignment, size):
            raise MemoryError(f"no {nbytes} bytes")
        data = (self._memory.value or 0, False)
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": data,
        }

    def __del__(self) -> None:
        LIBRARY.free(self._memory)


class HostMemory:
    """Host bytes, aligned to 256."""

    def __init__(self, nbytes: int) -> None:
        """Allocates without writing."""
        self.bytes = np.asarray(Allocation(nbytes))
        self.pointer = self.bytes.ctypes.data

    def upload(self, image: Array) -> None:
        """Overwrites the bytes."""
        self.bytes[:] = image

    def download(self) -> Array:
        """A copy of the bytes."""
        return self.bytes.copy()


@dataclass(frozen=True)
class Host:
    """The host backend, with a given number of threads or its own choice."""

    threads: int | None = None
    name: str = "host"

    def allocate(self, nbytes: int) -> HostMemory:
        """Aligned memory."""
        return HostMemory(nbytes)

    def stream(self) -> Any:
        """A host stream."""
        return planq.HOST if self.threads is None else planq.host_stream(threads=self.threads)

    def synchronize(self) -> None:
        """Host streams run inline."""


@dataclass(frozen=True)
class Layout:
    """How an operand lies in memory.

    Attributes:
        offset: Elements between an aligned address and the first element.
        pitch: Elements left free after each row, and after each plane.
    """

    offset: int = 0
    pitch: int = 0

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides in elements; the innermost is 1."""
        strides, step = [1] * len(shape), 1
        for axis in range(len(shape) - 1, 0, -1):
            step = step * max(shape[axis], 1) + self.pitch
            strides[axis - 1] = step
        return tuple(strides)

    def meant(self, values: Array) -> Array:
        """What a tensor of this layout holds that is given `values`."""
        return values


CONTIGUOUS = Layout()


@dataclass(frozen=True)
class SharedLayout(Layout):
    """An input whose rows share elements, or any operand whose rows run backwards.

    Axes of extent 1 have strides that nobody may look at.

    Attributes:
        repeated: Axes with stride 0: every index of them is the first.
        slide: Rows begin this many elements after one another, if that makes them overlap, else
            half a row; 0 leaves them apart. Planes overlap alike.
        backwards: Whether all outer axes run towards lower addresses.
    """

    repeated: tuple[int, ...] = ()
    slide: int = 0
    backwards: bool = False

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides in elements; the innermost is 1."""
        strides, span = [1] * len(shape), max(shape[-1], 1) if shape else 1
        if shape and shape[-1] == 1:
            strides[-1] = 7
        for axis in range(len(shape) - 2, -1, -1):
            step = 0 if axis in self.repeated else self._step(span)
            strides[axis] = (-step if self.backwards else step) if shape[axis] > 1 else -5
            span += (max(shape[axis], 1) - 1) * step
        return tuple(strides)

    def _step(self, span: int) -> int:
        if not self.slide:
            return span
        return self.slide if self.slide < span else max(span // 2, 1)

    def meant(self, values: Array) -> Array:
        """What a tensor with these strides holds, in the memory of a dense one with `values`."""
        if values.size == 0:
            return values
        strides = self.strides(values.shape)
        first = -lowest_offset(values.shape, strides)
        size = values.itemsize
        in_bytes = tuple(stride * size for stride in strides)
        dense = values.tobytes()
        return np.ndarray(values.shape, values.dtype, dense, first * size, in_bytes).copy()


def lowest_offset(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first one of a tensor to that at its lowest address; never above 0."""
    if 0 in shape:
        return 0
    return sum(min((n - 1) * s, 0) for n, s in zip(shape, strides, strict=True))


class Operand:
    """A tensor inside a guarded allocation."""

    def __init__(
        self,
        device: Device,
        dtype: str,
        shape: tuple[int, ...],
        layout: Layout,
        poison: int,
        guard: int = GUARD,
    ) -> None:
        """Allocates and poisons; `guard` bytes lie before and after."""
        self.dtype, self.shape = STORAGE[dtype], shape
        self._device, self._name = device, dtype
        self._strides = layout.strides(shape)
        below = -lowest_offset(shape, self._strides)
        reach = sum(abs((n - 1) * s) for n, s in zip(shape, self._strides, strict=True)) + 1
        extent = reach if math.prod(shape) else 0
        first = guard + layout.offset * self.dtype.itemsize
        self._start = first + below * self.dtype.itemsize
        self._blank = np.full(first + extent * self.dtype.itemsize + guard, poison, np.uint8)
        self._memory = device.allocate(self._blank.size)
        self._memory.upload(self._blank)
        self._written: tuple[Array, Array] | None = None  # values, and the allocation's bytes

    @property
    def tensor(self) -> TensorTuple:
        """The operand as an explicit tuple."""
        pointer = self._memory.pointer + self._start
        return (pointer, self.shape, self._strides, self._name, self._device.name)

    def _window(self, image: Array) -> Array:
        strides = tuple(s * self.dtype.itemsize for s in self._strides)
        return np.ndarray(self.shape, self.dtype, image, self._start, strides)

    def image(self, values: Array | None) -> Array:
        """The allocation's bytes when the tensor holds `values` and nothing else was written."""
        image = self._blank.copy()
        if values is not None:
            stored = np.ascontiguousarray(values).reshape(self.shape)
            self._window(image)[...] = stored.view(self.dtype)
        return image

    def write(self, values: Array) -> None:
        """Fills the tensor; what lies around it keeps its poison."""
        image = self.image(values)
        self._written = values, image
        self._memory.upload(image)

    def repoison(self) -> None:
        """Forgets what was written."""
        self._memory.upload(self._blank)

    def write_later(self, values: Array) -> Callable[[], None]:
        """Poisons the tensor; calling the result writes the values in the stream's order.

        For memory of GPUs, which can copy in that order.
        """
        memory: Any = self._memory
        staged = self._device.allocate(self._blank.size)
        staged.upload(self.image(values))
        self.repoison()
        return lambda: memory.enqueue_copy(staged)

    def read(self) -> Array:
        """The tensor's values, C-contiguous on the host."""
        values = np.ascontiguousarray(self._window(self._memory.download()))
        return values.reshape(self.shape)

    def _wanted(self, values: Array | None) -> Array:
        """The bytes that there have to be; of an input they are what was written."""
        if self._written is not None and self._written[0] is values:
            return self._written[1]
        return self.image(values)

    def assert_holds(self, values: Array | None, what: str) -> None:
        """Fails unless the tensor holds these bits and every other byte is untouched.

        None: the tensor's bytes are untouched too.
        """
        got, wanted = self._memory.download(), self._wanted(values)
        if np.array_equal(got, wanted):
            return
        stored, right = self._window(got).ravel(), self._window(wanted).ravel()
        wrong = np.flatnonzero(bits(stored) != bits(right))
        if not wrong.size:
            where = np.flatnonzero(got != wanted) - self._start
            raise AssertionError(f"{what}: bytes outside the tensor changed, at {where[:8]}")
        first = wrong[0]
        index = tuple(int(i) for i in np.unravel_index(first, self.shape))
        raise AssertionError(
            f"{what}: {wrong.size} of {stored.size} elements differ, first at {index}: "
            f"got {stored[first]!r} ({bits(stored)[first]:#x}), "
            f"expected {right[first]!r} ({bits(right)[first]:#x})"
        )


class Workspace:
    """Poisoned workspace between guards; `None` where a plan needs none.

    Without guards it is not poisoned either, but left as it was allocated.
    """

    def __init__(self, device: Device, nbytes: int, guard: int = GUARD) -> None:
        """Allocates exactly `nbytes` and the guards, and poisons them."""
        self._nbytes, self._guard = nbytes, guard
        self._memory = device.allocate(nbytes + 2 * guard)
        self.poison()

    @property
    def argument(self) -> tuple[int, int] | None:
        """What `run` takes."""
        return (self._memory.pointer + self._guard, self._nbytes) if self._nbytes else None

    def poison(self) -> None:
        """Makes the content undefined, as it may be on entry."""
        if self._guard:
            self._memory.upload(np.full(self._nbytes + 2 * self._guard, OUTPUT_POISON, np.uint8))

    def assert_guards(self, what: str) -> None:
        """Fails when a byte beside the workspace changed."""
        if self._guard:
            after = self._memory.download()
            around = np.concatenate([after[: self._guard], after[self._guard + self._nbytes :]])
            assert (around == OUTPUT_POISON).all(), f"{what}: wrote beside the workspace"
