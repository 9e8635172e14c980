"""Tensors that page between a GPU and the host, for optimizer state and other rarely used memory.

This is the only module of planq that allocates memory, on request. A tensor made for a CUDA stream
is managed memory of the stream's device: its pages move to where they are touched, and it may be
larger than the GPU's memory. It needs the package ``cuda-core`` (``pip install 'planq[cuda]'``). A
tensor made for a host stream is plain memory. Plans take both as operands, and other libraries take
them by DLPack::

    state = planq.memory.zeros(stream, (4096, 4096), "float32")
    state.prefetch(stream)                      # ahead of the launch that will touch it
    plan.run(stream, None, planq.FillArgs(output=state, value=1.0))
    torch.from_dlpack(state)                    # the same memory, on cuda:0

If managed memory exceeds what the GPU has free, pages move back and forth at every use. That can be
slower by orders of magnitude.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import functools
import importlib
import math
import mmap
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from planq import _core
from planq.dtypes import DType, parse_member
from planq.errors import DescriptorError, PlanqError, StreamError, shown

if TYPE_CHECKING:
    from planq.arguments import DTypeLike, StreamLike

__all__ = ["HostView", "PagePool", "PagedTensor", "Place", "empty", "zeros"]

_MOST_AXES: Final = 8
_BYTES: Final = {DType(name): bits // 8 for name, _, bits, *_ in _core.formats() if bits % 8 == 0}


class Place(enum.StrEnum):
    """Where pages go: to the tensor's own device, or to the host."""

    DEVICE = "device"
    HOST = "host"


class _Memory(Protocol):
    """Bytes at one address, freed with this object."""

    pointer: int

    @property
    def cuda(self) -> int | None:
        """The index of the CUDA device that they belong to; None for the host."""

    def prefetch(self, stream: _core.CudaStream | None, place: Place) -> None:
        """Moves the pages, in the order of the stream."""

    def advise(
        self, read_mostly: bool | None, preferred: Place | None, mapped: bool | None
    ) -> None:
        """Tells the driver how the pages will be used."""


class _HostMemory:
    """Zeroed pages of the process, which never move."""

    cuda: Final = None

    def __init__(self, nbytes: int) -> None:
        self._pages = mmap.mmap(-1, max(nbytes, 1))
        self.pointer = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def prefetch(self, stream: _core.CudaStream | None, place: Place) -> None:
        """Does nothing: host pages do not move."""

    def advise(
        self, read_mostly: bool | None, preferred: Place | None, mapped: bool | None
    ) -> None:
        """Does nothing: host pages take no advice."""


class _ManagedMemory:
    """Managed memory of a device; cuda.core prefetches it and sets advice.

    It is allocated by the driver API: memory of cuda.core's pools takes no advice.
    """

    def __init__(self, device: int, nbytes: int) -> None:
        self.cuda = device
        driver = _driver()
        with _on_device(device) as (core, own):
            error, pointer = driver.cuMemAllocManaged(
                max(nbytes, 1), driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
            )
            if int(error) != 0:
                raise PlanqError(
                    f"cuda:{device} gives no {nbytes} bytes of managed memory: {error.name}"
                )
            self.pointer = int(pointer)
            # At the end of the process the driver frees what is left.
            weakref.finalize(self, _free, device, self.pointer).atexit = False
            self._buffer = core.ManagedBuffer.from_handle(self.pointer, max(nbytes, 1))
            self._places = {Place.DEVICE: own, Place.HOST: core.Host()}

    def prefetch(self, stream: _core.CudaStream | None, place: Place) -> None:
        """Enqueues the move."""
        if stream is None or stream.device != self.cuda:
            given = "a host stream" if stream is None else f"one of cuda:{stream.device}"
            raise StreamError(f"expected a stream of cuda:{self.cuda}, got {given}")
        with _on_device(self.cuda) as (core, own):
            order = core.Stream.from_handle(stream.handle) if stream.handle else own.default_stream
            self._buffer.prefetch(self._places[place], stream=order)

    def advise(
        self, read_mostly: bool | None, preferred: Place | None, mapped: bool | None
    ) -> None:
        """Sets each piece of advice by cuda.core's property for it."""
        with _on_device(self.cuda) as (_, own):
            if read_mostly is not None:
                self._buffer.read_mostly = read_mostly
            if preferred is not None:
                self._buffer.preferred_location = self._places[preferred]
            if mapped is not None:
                (self._buffer.accessed_by.add if mapped else self._buffer.accessed_by.discard)(own)


class HostView:
    """The memory of a :class:`PagedTensor` as host memory; it keeps the memory alive.

    Host and GPU use managed memory at the same address. So wait for the streams that write there
    before you read here.
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: PagedTensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **asked: Any) -> Any:
        """A capsule of host memory."""
        return self._tensor._lend(None, max_version, asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return (1, 0)


class PagedTensor:
    """C-contiguous memory that a device and the host share; freed with the last reference.

    DLPack capsules, tensors that other libraries made of them, and bound launches are references
    too. Before you drop the last one, wait for the streams that still use the memory.

    Attributes:
        shape: Extents in elements.
        dtype: Element type.
        device: ``host`` or ``cuda:N``.
    """

    __slots__ = ("__weakref__", "_memory", "device", "dtype", "shape")

    def __init__(self, memory: _Memory, shape: tuple[int, ...], dtype: DType) -> None:
        """Tensors are made by :func:`empty`, :func:`zeros` and :class:`PagePool`."""
        self._memory = memory
        self.shape, self.dtype = shape, dtype
        self.device = "host" if memory.cuda is None else f"cuda:{memory.cuda}"

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return self._memory.pointer

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(math.prod(self.shape) * _BYTES[self.dtype])

    def prefetch(self, stream: StreamLike, to: Place | str = Place.DEVICE) -> None:
        """Enqueues a move of the memory ahead of its use. Plain memory stays.

        Args:
            stream: A stream of the tensor's device.
            to: Where the pages go.

        Raises:
            StreamError: The stream is of another device.
            DescriptorError: ``to`` is no :class:`Place`.
        """
        place = parse_member(Place, to, "to")
        self._memory.prefetch(_core.cuda_stream_of(stream), place)

    def advise(
        self,
        *,
        read_mostly: bool | None = None,
        preferred: Place | str | None = None,
        mapped: bool | None = None,
    ) -> None:
        """Tells the driver how the memory will be used. Plain memory takes no advice.

        Args:
            read_mostly: Whether host and device may both keep copies of pages until one writes.
            preferred: Where pages stay if possible.
            mapped: Whether the device keeps a mapping of pages that are elsewhere, so that it can
                access them without a page fault. Advice that is None is left as it is.
        """
        place = None if preferred is None else parse_member(Place, preferred, "preferred")
        self._memory.advise(read_mostly, place, mapped)

    def on_host(self) -> HostView:
        """The same memory as host memory: ``numpy.from_dlpack(state.on_host())``."""
        return HostView(self)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **asked: Any) -> Any:
        """A capsule of device memory. Managed memory is declared as CUDA memory.

        torch and others refuse memory that is declared as managed. The capsule does not wait for
        any stream: the caller knows which streams write to the memory.
        """
        return self._lend(self._memory.cuda, max_version, asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (device type, index)."""
        return (1, 0) if self._memory.cuda is None else (2, self._memory.cuda)

    def __repr__(self) -> str:
        return f"<planq.PagedTensor {self.shape} {self.dtype} on {self.device}>"

    def _lend(
        self, cuda: int | None, max_version: tuple[int, int] | None, asked: dict[str, Any]
    ) -> Any:
        own = (1, 0) if cuda is None else (2, cuda)
        wanted = asked.get("dl_device")
        if asked.get("copy") or (wanted is not None and tuple(map(int, wanted)) != own):
            raise BufferError("planq lends this memory where it is, and makes no copies")
        versioned = max_version is not None and max_version[0] >= 1
        return _core.lend(self, self.pointer, self.shape, self.dtype, cuda, versioned)


def empty(stream: StreamLike, shape: Sequence[int], dtype: DTypeLike) -> PagedTensor:
    """Allocates a tensor for the device of a stream; what it holds is undefined.

    Args:
        stream: A stream of the device to allocate for; nothing is enqueued on it.
        shape: Extents, of at most 8 axes.
        dtype: A type of whole bytes. 4-bit codes are ``uint8``, two a byte.

    Raises:
        DescriptorError: The shape or the type is invalid.
        PlanqError: For a CUDA stream: the package cuda-core is missing, or there is not enough
            memory.
    """
    parsed = DType.parse(dtype)
    if parsed not in _BYTES:
        raise DescriptorError("dtype", f"expected a type of whole bytes, got {parsed}")
    extents = tuple(shape)
    if len(extents) > _MOST_AXES or not all(type(n) is int and n >= 0 for n in extents):
        raise DescriptorError("shape", f"expected up to 8 extents from 0 on, got {shown(shape)}")
    nbytes = math.prod(extents) * _BYTES[parsed]
    named = _core.cuda_stream_of(stream)
    if named is None:
        return PagedTensor(_HostMemory(nbytes), extents, parsed)
    return PagedTensor(_ManagedMemory(named.device, nbytes), extents, parsed)


def zeros(stream: StreamLike, shape: Sequence[int], dtype: DTypeLike) -> PagedTensor:
    """As :func:`empty`, with every element 0; on CUDA, the fill is enqueued on the stream."""
    from planq.ops.memory.fill import FillArgs, FillDescriptor, FillPlan

    made = empty(stream, shape, dtype)
    if made.nbytes and made.device != "host":
        raw = (made.pointer, (made.nbytes,), None, DType.UINT8, made.device)
        plan = FillPlan.select(stream, FillDescriptor(shape=raw[1], output_dtype=DType.UINT8))
        plan.run(stream, None, FillArgs(output=raw, value=0))
    return made


class PagePool:
    """Paged tensors that are prefetched together, such as the state of an optimizer.

    The pool has weak references to its tensors: they are freed when nothing else refers to them.

    Args:
        smallest: The fewest elements for which :meth:`takes` is true. Smaller tensors are better
            left to the allocator of their library. 100,000 as in bitsandbytes.
    """

    def __init__(self, smallest: int = 100_000) -> None:
        self.smallest = smallest
        self._tensors: list[weakref.ref[PagedTensor]] = []

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape is large enough to be worth paging."""
        return math.prod(shape) >= self.smallest

    def empty(self, stream: StreamLike, shape: Sequence[int], dtype: DTypeLike) -> PagedTensor:
        """As :func:`planq.memory.empty`, whatever the size."""
        return self._remember(empty(stream, shape, dtype))

    def zeros(self, stream: StreamLike, shape: Sequence[int], dtype: DTypeLike) -> PagedTensor:
        """As :func:`planq.memory.zeros`, whatever the size."""
        return self._remember(zeros(stream, shape, dtype))

    def prefetch_all(self, stream: StreamLike, to: Place | str = Place.DEVICE) -> None:
        """Moves every tensor of the stream's device, the last one first.

        If not all of them fit, the ones that were made first are on the device in the end. A loop
        over the tensors in their order touches these first.
        """
        named = _core.cuda_stream_of(stream)
        device = "host" if named is None else f"cuda:{named.device}"
        for tensor in reversed(tuple(self)):
            if tensor.device == device:
                tensor.prefetch(stream, to)

    def __iter__(self) -> Iterator[PagedTensor]:
        """The tensors that still exist, in the order in which they were made."""
        return iter([tensor for held in self._tensors if (tensor := held()) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _remember(self, tensor: PagedTensor) -> PagedTensor:
        self._tensors = [held for held in self._tensors if held() is not None]
        self._tensors.append(weakref.ref(tensor))
        return tensor


@functools.cache
def _cuda_core() -> Any:
    try:
        core = importlib.import_module("cuda.core")
    except ModuleNotFoundError as error:
        raise PlanqError(
            "managed memory needs the package 'cuda-core': pip install 'planq[cuda]'"
        ) from error
    if not hasattr(core, "ManagedBuffer"):
        raise PlanqError("managed memory needs cuda-core 1.1 or newer")
    return core


@functools.cache
def _driver() -> Any:
    _cuda_core()
    return importlib.import_module("cuda.bindings.driver")


def _free(device: int, pointer: int) -> None:
    with _on_device(device):
        _driver().cuMemFree(pointer)


@contextlib.contextmanager
def _on_device(device: int) -> Iterator[tuple[Any, Any]]:
    """Yields cuda.core and the device, which is the thread's current device inside the block."""
    core = _cuda_core()
    before, own = core.Device(), core.Device(device)
    own.set_current()
    try:
        yield core, own
    finally:
        before.set_current()
