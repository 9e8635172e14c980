"""`planq.memory`: plain memory on the host, and what is asked of a cuda.core that only listens."""

from __future__ import annotations

import enum
import gc
import mmap
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.dlpack import from_dlpack

import planq
from planq import memory
from planq.memory import PagePool, Place

WHOLE = [dtype for dtype in planq.DType if dtype not in ("int4", "uint4", "float4_e2m1fn")]
WHOLE = [dtype for dtype in WHOLE if not dtype.startswith("float6")]


@pytest.mark.parametrize("dtype", WHOLE)
def test_torch_takes_every_type_without_a_copy(dtype: planq.DType) -> None:
    """And each element is 0."""
    tensor = memory.zeros(planq.HOST, (3, 5), dtype)
    theirs = from_dlpack(tensor)
    assert theirs.data_ptr() == tensor.pointer
    assert (theirs.shape, theirs.dtype) == ((3, 5), getattr(torch, dtype))
    assert tensor.nbytes == theirs.nbytes
    assert not theirs.view(torch.uint8).any()


@pytest.mark.parametrize("view", [False, True])
def test_numpy_sees_the_same_memory(view: bool) -> None:
    """Written by a plan, and read by both."""
    tensor = memory.empty(planq.HOST, (4, 6), "float32")
    desc = planq.FillDescriptor(shape=(4, 6), output_dtype="float32")
    args = planq.FillArgs(output=tensor, value=2.5)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert (np.from_dlpack(tensor.on_host() if view else tensor) == 2.5).all()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_nobody_takes_frees_what_it_holds(version: tuple[int, int] | None) -> None:
    """Of either version of DLPack."""
    tensor = memory.empty(planq.HOST, (3,), "int8")
    held = weakref.ref(tensor)
    capsule = tensor.__dlpack__(max_version=version)
    del tensor
    gc.collect()
    assert held() is not None
    del capsule
    gc.collect()
    assert held() is None


def test_memory_lives_as_long_as_somebody_has_it() -> None:
    """The tensor, a view of it, another library's tensor, or a bound launch."""
    tensor = memory.zeros(planq.HOST, (1000,), "float32")
    held, theirs = weakref.ref(tensor), from_dlpack(tensor)
    desc = planq.FillDescriptor(shape=(1000,), output_dtype="float32")
    plan = planq.Plan.select(planq.HOST, desc)
    launch = plan.bind(None, planq.FillArgs(output=tensor, value=1.0))
    del tensor
    launch(planq.HOST)
    assert theirs.sum() == 1000
    del theirs
    gc.collect()
    assert held() is not None
    del launch
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,) * 8])
def test_any_shape(shape: tuple[int, ...]) -> None:
    """Without elements, without axes, with eight."""
    tensor = memory.zeros(planq.HOST, shape, "int32")
    assert from_dlpack(tensor).shape == shape


def test_what_is_refused() -> None:
    """Types that share bytes, extents that are none, another device, a copy, another place."""
    for shape, dtype, field in (((3,), "int4", "dtype"), ((-1,), "int8", "shape")):
        with pytest.raises(planq.DescriptorError) as error:
            memory.empty(planq.HOST, shape, dtype)
        assert error.value.field == field
    with pytest.raises(planq.DescriptorError):
        memory.empty(planq.HOST, (1,) * 9, "int8")
    tensor = memory.empty(planq.HOST, (3,), "int8")
    for asked in ({"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**asked)
    with pytest.raises(planq.DescriptorError) as error:
        tensor.prefetch(planq.HOST, "disk")
    assert error.value.field == "to"
    with pytest.raises(planq.StreamError):
        memory.empty(None, (3,), "int8")  # type: ignore[arg-type]


def test_plain_memory_takes_no_orders() -> None:
    """A program for both backends need not ask."""
    tensor = memory.zeros(planq.HOST, (3,), "int8")
    tensor.prefetch(planq.HOST)
    tensor.advise(read_mostly=True, preferred="host", mapped=True)
    assert tensor.device == "host"


class Pages:
    """cuda.core and the driver as far as they are asked; every request is written down."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.log: list[Any] = []
        self.current = 0
        pages = self

        class Stream:
            def __init__(self, handle: int) -> None:
                self.handle = handle

            from_handle = classmethod(lambda cls, handle: cls(handle))

        class Device:
            default_stream = Stream(0)

            def __init__(self, index: int | None = None) -> None:
                self.index = pages.current if index is None else index

            def set_current(self) -> None:
                pages.current = self.index

        class Buffer:
            def __init__(self, pointer: int, size: int) -> None:
                self.handle, self.size = pointer, size
                self.accessed_by: set[Any] = set()

            from_handle = classmethod(lambda cls, pointer, size: cls(pointer, size))

            def prefetch(self, location: Any, *, stream: Stream) -> None:
                place = getattr(location, "index", "host")
                pages.log.append(("prefetch", self.handle, place, stream.handle, pages.current))

        self.module = ModuleType("cuda.core")
        self.module.__dict__.update(
            Device=Device,
            Host=type("Host", (), {}),
            Stream=Stream,
            ManagedBuffer=Buffer,
        )
        self.driver = ModuleType("cuda.bindings.driver")
        self.driver.__dict__.update(
            CUmemAttach_flags=SimpleNamespace(CU_MEM_ATTACH_GLOBAL=1),
            cuMemAllocManaged=self._allocate,
            cuMemFree=self._free,
        )
        self.held: dict[int, Any] = {}
        self.most = 1 << 20

    def _allocate(self, size: int, flags: int) -> tuple[Any, int]:
        self.log.append(("allocate", size, flags, self.current))
        if size > self.most:
            return Refusal.OUT_OF_MEMORY, 0
        memory = mmap.mmap(-1, size)
        pointer = np.frombuffer(memory, np.uint8).ctypes.data
        self.held[pointer] = memory
        return Refusal.NONE, pointer

    def _free(self, pointer: int) -> None:
        self.log.append(("free", pointer, self.current))
        del self.held[pointer]


class Refusal(enum.IntEnum):
    """As the driver says it."""

    NONE = 0
    OUT_OF_MEMORY = 2


def forget() -> None:
    """What the module has kept of a cuda.core."""
    memory._cuda_core.cache_clear()
    memory._driver.cache_clear()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """In the place of the real one."""
    made = Pages()
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", made.module)
    monkeypatch.setitem(sys.modules, "cuda.bindings", ModuleType("cuda.bindings"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made.driver)
    forget()
    yield made
    forget()


STREAM = planq.cuda_stream(7, 1)


def test_managed_memory_is_asked_for_on_its_device(pages: Pages) -> None:
    """And freed there with the last that refers to it; the thread's own device is what it was."""
    tensor = memory.empty(STREAM, (5, 3), "float32")
    assert pages.log == [("allocate", 60, 1, 1)]
    assert pages.current == 0
    assert tensor.device == "cuda:1"
    assert tensor.__dlpack_device__() == (2, 1)
    assert tensor.on_host().__dlpack_device__() == (1, 0)
    view = np.from_dlpack(tensor.on_host())
    assert view.shape == (5, 3)
    at = tensor.pointer
    del tensor
    gc.collect()
    assert len(pages.log) == 1
    del view
    gc.collect()
    assert pages.log[1:] == [("free", at, 1)]
    assert pages.current == 0


def test_memory_that_there_is_not(pages: Pages) -> None:
    """Says how much of which device."""
    message = r"cuda:1 gives no 1048577 bytes of managed memory: OUT_OF_MEMORY"
    with pytest.raises(planq.PlanqError, match=message):
        memory.empty(STREAM, (pages.most + 1,), "int8")
    assert pages.current == 0


def test_prefetches_go_to_the_stream_that_is_named(pages: Pages) -> None:
    """And to no other device's."""
    tensor = memory.empty(STREAM, (5,), "int8")
    del pages.log[:]
    tensor.prefetch(STREAM)
    tensor.prefetch((9, 1), Place.HOST)
    tensor.prefetch((0, 1), "host")
    at = tensor.pointer
    assert pages.log == [
        ("prefetch", at, 1, 7, 1),
        ("prefetch", at, "host", 9, 1),
        ("prefetch", at, "host", 0, 1),
    ]
    for stream in (planq.cuda_stream(7, 0), planq.HOST):
        with pytest.raises(planq.StreamError, match=r"expected a stream of cuda:1"):
            tensor.prefetch(stream)


def test_advice_is_given_where_it_is_asked_for(pages: Pages) -> None:
    """What is None is not touched."""
    tensor: Any = memory.empty(STREAM, (5,), "int8")
    buffer = tensor._memory._buffer
    tensor.advise(mapped=True)
    assert [device.index for device in buffer.accessed_by] == [1]
    assert not hasattr(buffer, "read_mostly")
    tensor.advise(read_mostly=True, preferred="host")
    assert buffer.read_mostly is True
    assert buffer.preferred_location is tensor._memory._places["host"]
    assert pages.current == 0


@pytest.mark.usefixtures("pages")
def test_a_pool_fetches_the_last_first(pages: Pages) -> None:
    """Of those that there still are, on the stream's device."""
    pool = PagePool(smallest=10)
    assert (pool.takes((2, 5)), pool.takes((3, 3))) == (True, False)
    first, dropped, last = (pool.empty(STREAM, (n,), "int8") for n in (1, 2, 3))
    other = pool.zeros(planq.HOST, (4,), "int8")
    assert [tensor.shape for tensor in pool] == [(1,), (2,), (3,), (4,)]
    del dropped
    gc.collect()
    assert len(pool) == 3
    del pages.log[:]
    pool.prefetch_all(STREAM)
    pool.prefetch_all(planq.HOST)
    assert [entry[1] for entry in pages.log] == [last.pointer, first.pointer]
    assert other.device == "host"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one that is too old."""
    forget()
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(planq.PlanqError, match=r"needs the package 'cuda-core'.*planq\[cuda\]"):
        memory.empty(STREAM, (3,), "int8")
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", ModuleType("cuda.core"))
    with pytest.raises(planq.PlanqError, match=r"cuda-core 1\.1 or newer"):
        memory.empty(STREAM, (3,), "int8")
    forget()
