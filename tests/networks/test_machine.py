"""Where networks run: one block, copies in the order of a stream, graphs; on a host and on a GPU.

The GPU is one whose driver does its work only when somebody waits for it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from networks.fake_driver import Driver
from planq import driver as calls
from planq.executors import DeviceError
from planq.networks import machine as machines
from planq.networks import machine_of
from planq.networks.tensors import CudaTensor, Place, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planq.networks import Machine

Array = np.ndarray[Any, Any]
NAMES = ["host", "cuda:3"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    monkeypatch.setattr(machines, "require_device", lambda _: None)
    calls.driver.cache_clear()
    calls.context.cache_clear()
    yield made
    made.finish()
    made.work.clear()
    made.graphs.clear()
    gc.collect()
    assert made.living == {}
    calls.driver.cache_clear()
    calls.context.cache_clear()


def array_of(tensor: Any) -> Array:
    """The elements of a tensor, wherever it is, as they are now."""
    if isinstance(tensor, np.ndarray):
        return tensor
    interface = tensor.__cuda_array_interface__
    return np.ndarray(
        interface["shape"],
        interface["typestr"],
        (ctypes.c_uint8 * 2**20).from_address(interface["data"][0]),
        strides=interface["strides"],
    )


# --- Names


def test_a_machine_has_a_name(driver: Driver) -> None:
    assert [machine_of(name).name for name in ("host", "cuda", "cuda:7")] == [
        "host",
        "cuda:0",
        "cuda:7",
    ]
    assert machine_of("host", threads=3).stream.threads == 3
    assert machine_of("host").stream is planq.HOST
    assert machine_of("cuda:7").stream.device == 7


@pytest.mark.parametrize("name", ["cuda:", "gpu", "cuda:x", "", "cpu", "cuda:-1"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=rf"expected host, cuda or cuda:N, got '{name}'"):
        machine_of(name)


def test_a_gpu_that_is_not_here_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"cuda:99: not on this machine, which has|no CUDA"):
        machine_of("cuda:99")


def test_threads_are_the_host_s(driver: Driver) -> None:
    with pytest.raises(planq.ArgumentError, match="threads: expected none for a GPU, got 2"):
        machine_of("cuda", threads=2)
    with pytest.raises(planq.StreamError):
        machine_of("host", threads=0)


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    calls.driver.cache_clear()
    with pytest.raises(DeviceError, match=r"cuda:0 needs the package 'cuda-python'"):
        machine_of("cuda")


# --- The block


@pytest.mark.parametrize("name", NAMES)
def test_tensors_lie_where_they_are_told_to(name: str, driver: Driver) -> None:
    shapes = [((3, 5), "float32"), ((7,), "int8"), ((), "int64"), ((0, 4), "float16"), ((2,), "f2")]
    offsets = [0, 256, 256, 1024, 1020]
    machine = machine_of(name)
    machine.reserve(1024)
    assert machine.nbytes == 1024
    made = [array_of(machine.tensor(at, *each)) for at, each in zip(offsets, shapes, strict=True)]
    assert [(each.shape, each.dtype) for each in made] == [(s, np.dtype(d)) for s, d in shapes]
    places = [each.ctypes.data for each in made if each.size]
    assert [place - places[0] for place in places] == [0, 256, 256, 1020]
    assert places[0] % planq.WORKSPACE_ALIGNMENT == 0


@pytest.mark.parametrize("name", NAMES)
def test_tensors_outside_of_the_block_are_refused(name: str, driver: Driver) -> None:
    machine = machine_of(name)
    with pytest.raises(planq.ArgumentError, match="memory: expected a block that `reserve` has"):
        machine.tensor(0, (1,), "int8")
    machine.reserve(1024)
    for offset in (1021, -1, 1 << 40):
        told = f"offset: expected 4 bytes inside of a block of 1024, got {offset}"
        with pytest.raises(planq.ArgumentError, match=told):
            machine.tensor(offset, (2,), "float16")


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_has_one_block(name: str, driver: Driver) -> None:
    machine = machine_of(name)
    assert machine.nbytes is None
    machine.reserve(0)
    with pytest.raises(planq.ArgumentError, match="memory: expected one block, of one network"):
        machine.reserve(10)


def test_memory_that_is_not_there_is_an_error(driver: Driver) -> None:
    driver.refuses = "cuMemAlloc"
    told = "cuda:3: the allocation of 1000 bytes failed: CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(planq.PlanqError, match=told):
        machine_of("cuda:3").reserve(1000)


# --- Copies


def machine_with(name: str, nbytes: int = 4096) -> Machine:
    machine = machine_of(name)
    machine.reserve(nbytes)
    return machine


def put(machine: Machine, array: Array, offset: int = 0) -> Any:
    """A tensor of the elements of an array."""
    made = machine.tensor(offset, array.shape, array.dtype)
    machine.put(made, array)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_comes_back(name: str, driver: Driver) -> None:
    machine = machine_with(name)
    given = np.arange(60, dtype=np.float32).reshape(6, 10)
    tensor = put(machine, given[:, ::2])
    assert tensor.shape == (6, 5)
    assert tensor.dtype == np.float32
    assert np.array_equal(machine.get(tensor), given[:, ::2])
    assert np.array_equal(machine.get(tensor[1:4]), given[1:4, ::2])
    assert np.array_equal(machine.get(tensor[2:6, 1:4]), given[2:, 2:8:2])
    assert machine.get(tensor[3:3]).shape == (0, 5)
    assert machine.get(put(machine, np.array(3, np.float16), 512)) == 3
    assert np.array_equal(machine.get(tensor), given[:, ::2])


@pytest.mark.parametrize("name", NAMES)
def test_a_filled_array_may_change_at_once(name: str, driver: Driver) -> None:
    machine = machine_with(name)
    tensor = machine.tensor(0, (4,), "int64")
    given = np.arange(4)
    machine.fill(tensor, given)
    first = machine.fetch(tensor)
    given += 10
    machine.fill(tensor[1:3], given[:2])
    machine.copy(tensor[3:], tensor[:1])
    second = machine.fetch(tensor)
    machine.fill(tensor, given)
    # Of each the tensor is as it was then, whatever the order of the questions.
    assert second().tolist() == [0, 10, 11, 0]
    assert first().tolist() == [0, 1, 2, 3]
    assert machine.get(tensor).tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("name", NAMES)
def test_copies_do_not_convert(name: str, driver: Driver) -> None:
    machine = machine_with(name)
    tensor = machine.tensor(0, (4,), "int64")
    for wrong in (np.zeros(3, np.int64), np.zeros(4, np.int32)):
        with pytest.raises(planq.ArgumentError, match=r"source of a copy: expected \(4,\) int64"):
            machine.fill(tensor, wrong)
        with pytest.raises(planq.ArgumentError, match=r"source of a copy: expected \(4,\) int64"):
            machine.put(tensor, wrong)
        with pytest.raises(planq.ArgumentError, match=r"source of a copy: expected \(4,\) int64"):
            machine.copy(tensor, put(machine, wrong, 256))


def test_pinned_memory_is_used_again_when_its_copy_is_done(driver: Driver) -> None:
    machine = machine_with("cuda:3", 1 << 20)
    tensor = machine.tensor(0, (2000,), "int64")
    for count in range(3 * machines.MOST_WAITING):
        machine.fill(tensor, np.full(2000, count))
        assert machine.get(tensor[:1]).tolist() == [count]
    pinned = sorted(kind for kind in driver.living.values() if kind == "pinned")
    assert len(pinned) == 2
    # Copies that nobody waits for take more, up to a bound.
    for count in range(3 * machines.MOST_WAITING):
        machine.fill(tensor, np.full(2000, count))
    pinned = [kind for kind in driver.living.values() if kind == "pinned"]
    assert len(pinned) == 1 + machines.MOST_WAITING
    assert machine.get(tensor).tolist() == [3 * machines.MOST_WAITING - 1] * 2000


def test_copies_that_nobody_reads_give_their_memory_back(driver: Driver) -> None:
    machine = machine_with("cuda:3")
    tensor = put(machine, np.arange(4))
    for _ in range(9):
        machine.fetch(tensor)
        driver.finish()
    kept = machine.fetch(tensor)
    machine.fill(tensor, np.arange(4, 8))
    assert machine.get(tensor).tolist() == [4, 5, 6, 7]
    assert kept().tolist() == [0, 1, 2, 3]
    pinned = [kind for kind in driver.living.values() if kind == "pinned"]
    assert len(pinned) <= 3


# --- Graphs


def test_a_graph_runs_what_was_captured_and_only_when_it_is_called(driver: Driver) -> None:
    machine = machine_with("cuda:3")
    tensor = machine.tensor(0, (2,), "int64")
    machine.fill(tensor, np.zeros(2, np.int64))
    driver.finish()

    def run() -> None:
        driver.enqueue(lambda: array_of(tensor).__iadd__(1))

    step = machine.captured(run)
    assert machine.get(tensor).tolist() == [0, 0]
    step()
    machine.fill(tensor[:1], np.array([5]))
    step()
    assert machine.get(tensor).tolist() == [6, 2]


def test_a_host_runs_at_once() -> None:
    machine = machine_with("host")
    ran = list[int]()
    step = machine.captured(lambda: ran.append(1))
    assert ran == []
    step()
    assert ran == [1]


def test_a_capture_ends_where_a_launch_fails(driver: Driver) -> None:
    machine = machine_with("cuda:3")

    def run() -> None:
        raise RuntimeError("no launch")

    with pytest.raises(RuntimeError, match="no launch"):
        machine.captured(run)
    assert driver.captured is None
    assert "graph" not in driver.living.values()
    driver.refuses = "cuGraphInstantiate"
    with pytest.raises(planq.PlanqError, match="a CUDA graph of a step failed: CUDA_ERROR_OUT_OF"):
        machine.captured(lambda: None)
    assert "graph" not in driver.living.values()
    driver.refuses = "cuGraphLaunch"
    step = machine.captured(lambda: None)
    with pytest.raises(planq.PlanqError, match="the launch of a step failed: CUDA_ERROR_OUT_OF"):
        step()


def test_everything_is_given_back(driver: Driver) -> None:
    machine = machine_with("cuda:3")
    tensor, step = put(machine, np.arange(4)), machine.captured(lambda: None)
    step()
    assert machine.get(tensor).tolist() == [0, 1, 2, 3]
    del step
    gc.collect()
    assert "executable" not in driver.living.values()
    del machine
    gc.collect()
    # The tensor still has its memory.
    assert list(driver.living.values()) == ["memory"]
    del tensor
    gc.collect()
    assert driver.living == {}
    assert driver.contexts == []


# --- Tensors


def both(shape: tuple[int, ...], dtype: str = "int16") -> tuple[Array, CudaTensor]:
    """An array, and a tensor in the same memory."""
    array = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    return array, CudaTensor(array, array.ctypes.data, shape, dtype, Place(0))


def same(array: Array, tensor: CudaTensor) -> bool:
    """Whether both are the same elements of the same memory, by their addresses."""
    found = tensor.__cuda_array_interface__
    told = found["shape"], found["typestr"], len(tensor.shape)
    if told != (array.shape, array.dtype.str, array.ndim):
        return False
    strides = zip(array.shape, array.strides, found["strides"], strict=True)
    near = all(extent < 2 or mine == other for extent, mine, other in strides)
    return array.size == 0 or (near and found["data"][0] == array.ctypes.data)


INDICES = [
    np.s_[2],
    np.s_[-1],
    np.s_[1:3],
    np.s_[:, 2:5],
    np.s_[1:, 3],
    np.s_[2, 4],
    np.s_[:-1, -4:-1],
    np.s_[3:1],
    np.s_[:, 1:100],
    np.s_[:, :, 1],
    np.s_[1:3, 2:4, 1:2],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_cuts_are_numpy_s(index: Any) -> None:
    array, tensor = both((4, 6, 3))
    assert same(array[index], tensor[index])
    # And cuts of cuts.
    assert same(array[1:, 1:][index], tensor[1:, 1:][index])
    assert len(tensor[1:]) == 3


@pytest.mark.parametrize(
    ("columns", "shape"),
    [
        (slice(None), (24,)),
        (slice(None), (-1, 6)),
        (slice(None), (2, 3, 4)),
        (slice(0, 4), (4, 2, 2)),
        (slice(2, 6), (-1, 4, 1)),
        (slice(1, 4), (4, 3)),
        (slice(1, 4), (4, -1, 1)),
    ],
)
def test_other_axes_of_the_same_elements(columns: slice, shape: tuple[int, ...]) -> None:
    array, tensor = both((4, 6))
    expected = array[:, columns].reshape(shape)
    assert np.shares_memory(expected, array)
    assert same(expected, tensor[:, columns].reshape(*shape))
    assert same(expected, tensor[:, columns].reshape(shape))


def test_axes_that_need_a_copy_are_refused() -> None:
    _, tensor = both((4, 6))
    for shape in [(12,), (2, 6), (4, 1, 4), (3, 4)]:
        with pytest.raises(planq.ArgumentError, match="shape: expected "):
            tensor[:, 1:4].reshape(shape)
    for shape in [(5, 5), (-1, -1), (7, -1)]:
        with pytest.raises(planq.ArgumentError, match="shape: expected axes of 24 elements"):
            tensor.reshape(shape)
    for index in [np.s_[::2], 4, -5, np.s_[0, 0, 0]]:
        with pytest.raises(planq.ArgumentError, match="index: expected "):
            tensor[index]


def test_one_row_many_times() -> None:
    array, tensor = both((1, 6))
    assert same(np.broadcast_to(array, (3, 6)), repeated(tensor, 3))
    assert same(repeated(array[:, :2], 5), repeated(tensor[:, :2], 5))
