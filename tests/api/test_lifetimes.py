"""Memory that was exported to planq stays until `run` has returned, or the bound launch is gone.

The native hook behind PLANQ_VERBOSE is called when all operands have been read and nothing has run:
what lives then lives while the kernel runs.
"""

from __future__ import annotations

import array
import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq import _core
from planq.audit.reference.formats import Array
from support.samples import make_descriptor, make_sample

NOOP: Any = importlib.import_module("operators.noop")
NOOP_DESCRIPTOR = NOOP.NoopDescriptor(shape=(8,), input_dtype="float32", output_dtype="int8")
LARGE = (64, 4096)  # a host launch of a megabyte lets other threads run meanwhile
SMALL = (6, 32)
sizes = pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])


@contextmanager
def before_each_launch(look: Callable[[], object]) -> Iterator[None]:
    """Calls `look` between the reading of the operands and the launch."""
    _core.set_verbose_hook(lambda event, plan: look())
    try:
        yield
    finally:
        _core.set_verbose_hook(None)


def make_plan(shape: tuple[int, int]) -> planq.Plan:
    """Dynamic quantization per token on the host."""
    return planq.Plan.select(planq.HOST, make_descriptor(shape=shape))


def make_args(shape: tuple[int, int], **changes: Any) -> planq.DynamicRangeQuantizeArgs:
    """Its operands, as NumPy arrays but for the given ones."""
    operands: dict[str, Any] = {
        "input": np.ones(shape, np.float32),
        "output": np.empty(shape, np.int8),
        "scale": np.empty(shape[0], np.float32),
    }
    return planq.DynamicRangeQuantizeArgs(**operands | changes)


class Exporter:
    """Answers each request for its memory with a copy that nothing but the export keeps."""

    def __init__(self, source: Array) -> None:
        """Has exported nothing so far."""
        self.source = source
        self.exported: list[weakref.ref[Array]] = []

    def copy(self) -> Array:
        """A copy that is watched."""
        copied = self.source.copy()
        self.exported.append(weakref.ref(copied))
        return copied

    def alive(self) -> list[bool]:
        """Which of the copies are still there."""
        return [copied() is not None for copied in self.exported]


class CapsuleExporter(Exporter):
    """Through DLPack, in the form of version 1 or, from an older producer, before it."""

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule over the copy."""
        return self.copy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return (1, 0)


class OldCapsuleExporter(CapsuleExporter):
    """Knows no keywords."""

    def __dlpack__(self) -> Any:
        """A capsule over the copy."""
        return self.copy().__dlpack__()


class InterfaceExporter(Exporter):
    """Through an interface whose dictionary keeps the copy, as that of a NumPy scalar does."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Made anew for each request."""
        copied = self.copy()
        return {**copied.__array_interface__, "keeper": copied}


EXPORTERS = [CapsuleExporter, OldCapsuleExporter, InterfaceExporter]
every_exporter = pytest.mark.parametrize("exporter", EXPORTERS)


@sizes
@every_exporter
def test_an_export_stays_until_run_has_returned(
    exporter: type[Exporter], shape: tuple[int, int]
) -> None:
    """And no longer."""
    source = np.linspace(1, 2, shape[0] * shape[1], dtype=np.float32).reshape(shape)
    x = exporter(source)
    args, plan = make_args(shape, input=x), make_plan(shape)
    seen: list[list[bool]] = []
    with before_each_launch(lambda: seen.append(x.alive())):
        plan.run(planq.HOST, None, args)
    assert seen == [[True]]
    assert x.alive() == [False]
    assert np.array_equal(args.scale, source.max(axis=1) / np.float32(127))


@every_exporter
def test_an_export_stays_as_long_as_a_bound_launch(exporter: type[Exporter]) -> None:
    """Also when the argument object and the tensor are gone."""
    x = exporter(np.full(SMALL, 254, np.float32))
    args = make_args(SMALL, input=x)
    scale = args.scale
    launch = make_plan(SMALL).bind(None, args)
    del args
    assert x.alive() == [True]
    launch(planq.HOST)
    assert (scale == 2).all()
    del launch
    assert x.alive() == [False]


class AlignedExporter(CapsuleExporter):
    """Exports as many of its bytes as start at an address that a workspace may have."""

    def copy(self) -> Array:
        """A watched copy's aligned part."""
        copied = super().copy()
        start = -copied.ctypes.data % planq.WORKSPACE_ALIGNMENT
        return copied[start : start + 1000]


def test_an_exported_workspace_stays_too() -> None:
    """It is an operand of another name."""
    pref = planq.PlanPreference(sku="noop/host/exact", body="staged")
    plan = planq.Plan.select(planq.HOST, NOOP_DESCRIPTOR, pref)
    args = NOOP.NoopArgs(
        input=np.zeros(8, np.float32),
        output=np.zeros(8, np.int8),
        scale=np.zeros(1, np.float32),
        zero_point=np.zeros(1, np.int32),
    )
    memory = AlignedExporter(np.zeros(4096, np.uint8))
    seen: list[list[bool]] = []
    with before_each_launch(lambda: seen.append(memory.alive())):
        plan.run(planq.HOST, memory, args)
    assert seen == [[True]]
    launch = plan.bind(memory, args)
    assert memory.alive() == [False, True]
    del launch
    assert memory.alive() == [False, False]


def owner_of(tensor: torch.Tensor, memory: Array) -> weakref.ref[Array]:
    """Dies with the storage of the tensor, which is the only one to keep the array."""
    assert tensor.data_ptr() == memory.ctypes.data
    return weakref.ref(memory)


def watched_tensor(shape: tuple[int, int], value: float) -> tuple[torch.Tensor, weakref.ref[Array]]:
    """A torch tensor over an array of its own."""
    memory = np.full(shape, value, np.float32)
    tensor = torch.from_numpy(memory)
    return tensor, owner_of(tensor, memory)


EXCHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    "data": lambda t: setattr(t, "data", torch.zeros(1)),
    "set_": lambda t: t.set_(torch.zeros(1)),
}
every_exchange = pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES.keys())


@sizes
@every_exchange
def test_a_bound_launch_keeps_the_memory_of_a_tensor_not_the_tensor(
    exchange: Callable[[torch.Tensor], object], shape: tuple[int, int]
) -> None:
    """torch lets a tensor go over to other memory: module.half(), FSDP, `.data = ...`."""
    x, memory = watched_tensor(shape, 254)
    args = make_args(shape, input=x)
    launch = make_plan(shape).bind(None, args)
    exchange(x)
    assert memory() is not None
    launch(planq.HOST)
    assert (args.scale == 2).all()
    del launch
    assert memory() is None


@sizes
@every_exchange
def test_run_keeps_the_memory_that_it_has_read(
    exchange: Callable[[torch.Tensor], object], shape: tuple[int, int]
) -> None:
    """When the tensor goes over to other memory between the check and the kernel."""
    x, memory = watched_tensor(shape, 254)
    args, plan = make_args(shape, input=x), make_plan(shape)
    seen: list[bool] = []

    def look() -> None:
        exchange(x)
        seen.append(memory() is not None)

    with before_each_launch(look):
        plan.run(planq.HOST, None, args)
    assert seen == [True]
    assert (args.scale == 2).all()
    assert memory() is None


class Meddler:
    """A host tensor that does something when it is asked for its memory."""

    def __init__(self, array: Array, act: Callable[[], object]) -> None:
        """Keeps both."""
        self.array, self.act = array, act

    def __dlpack__(self, **options: Any) -> Any:
        """Acts, then exports."""
        self.act()
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return (1, 0)


@sizes
def test_an_operand_cannot_free_the_memory_of_another(shape: tuple[int, int]) -> None:
    """A tensor that another operand's Python code changes is read before or after, not half."""
    x, _ = watched_tensor(shape, 254)
    other = torch.full(shape, 127.0)
    scale = np.empty(shape[0], np.float32)
    args = make_args(shape, input=x, scale=Meddler(scale, lambda: setattr(x, "data", other)))
    make_plan(shape).run(planq.HOST, None, args)
    assert (scale == 1).all() or (scale == 2).all()


def test_a_buffer_cannot_be_resized_under_a_bound_launch() -> None:
    """Python's own buffers are taken, and locked as long as planq uses them."""
    x = array.array("f", range(192))
    memory = memoryview(x).cast("B").cast("f", SMALL)
    args = make_args(SMALL, input=memory)
    del memory
    launch = make_plan(SMALL).bind(None, args)
    args.input = None
    with pytest.raises(BufferError):
        x.append(0.0)
    launch(planq.HOST)
    expected = np.arange(192, dtype=np.float32).reshape(SMALL).max(axis=1) / np.float32(127)
    assert np.array_equal(args.scale, expected)
    del launch
    x.append(0.0)


# --- scalars ---------------------------------------------------------------------------------


class Number:
    """Has nothing but `__index__`."""

    def __init__(self, value: int) -> None:
        """Keeps the value."""
        self.value = value

    def __index__(self) -> int:
        """The value."""
        return self.value


STOCHASTIC = planq.FakeQuantizeDescriptor(
    shape=(4096,), input_dtype="float32", rounding=planq.Rounding.STOCHASTIC
)


def draw(seed: object, offset: object) -> Array:
    """Halves, rounded up or down."""
    out = np.empty(4096, np.float32)
    args = planq.FakeQuantizeArgs(
        input=np.full(4096, 0.5, np.float32),
        output=out,
        scale=np.ones(1, np.float32),
        seed=seed,
        offset=offset,
    )
    plan = planq.Plan.select(planq.HOST, STOCHASTIC)
    assert plan.can_implement(args)
    plan.run(planq.HOST, None, args)
    return out


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, Number])
def test_a_number_is_taken_by_its_value(kind: Callable[[int], object]) -> None:
    """As `rng.integers()` returns it, or whatever has `__index__`."""
    for value in np.random.default_rng(1).integers(2**31, size=10).tolist():
        assert np.array_equal(draw(kind(value), kind(3)), draw(value, 3))


def test_numbers_beyond_the_signed_range_are_taken_by_their_bits() -> None:
    """An unsigned seed."""
    assert np.array_equal(draw(np.uint64(2**64 - 1), 0), draw(-1, 0))


def test_a_number_in_memory_is_read_when_the_kernel_runs() -> None:
    """A tensor of shape () or (1,) has an `__index__` as well, and is no number."""
    for seed in (np.array(7), np.array([7]), torch.tensor(7), torch.tensor([7])):
        args = planq.FakeQuantizeArgs(
            input=np.full(4096, 0.5, np.float32),
            output=np.empty(4096, np.float32),
            scale=np.ones(1, np.float32),
            seed=seed,
            offset=0,
        )
        launch = planq.Plan.select(planq.HOST, STOCHASTIC).bind(None, args)
        launch(planq.HOST)
        assert np.array_equal(args.output, draw(7, 0))
        seed += 1
        launch(planq.HOST)
        assert np.array_equal(args.output, draw(8, 0))


@pytest.mark.parametrize("bad", [1.5, np.float64(1), np.bool_(True), "1", Number(2**64)])
def test_what_is_no_integer_of_64_bits_is_refused(bad: object) -> None:
    """By name, as anything else."""
    args = planq.FakeQuantizeArgs(
        input=np.zeros(4096, np.float32),
        output=np.zeros(4096, np.float32),
        scale=np.ones(1, np.float32),
        seed=bad,
        offset=0,
    )
    status = planq.Plan.select(planq.HOST, STOCHASTIC).can_implement(args)
    assert status.operand == "seed"


@pytest.mark.parametrize("scale", [np.float32(2), np.float64(2).astype(np.float32)])
def test_a_numpy_scalar_may_be_an_input_of_shape_nothing(scale: object) -> None:
    """Its memory is a copy that only the interface keeps."""
    desc = planq.QuantizeDescriptor(
        shape=(4,), input_dtype="float32", output_dtype="int8", scope=planq.Scope.token()
    )
    assert desc.operands()["scale"].shape == ()
    args = planq.QuantizeArgs(
        input=np.arange(4, dtype=np.float32) * 2, output=np.empty(4, np.int8), scale=scale
    )
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert args.output.tolist() == [0, 1, 2, 3]


def test_a_numpy_scalar_is_no_output() -> None:
    """What planq wrote there would be lost; an array of shape () receives it."""
    for dtype in (np.float32, ml_dtypes.bfloat16):
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=(4,), input_dtype="float32", output_dtype="int8", scale_dtype=np.dtype(dtype)
        )
        plan = planq.Plan.select(planq.HOST, desc)
        args = planq.DynamicRangeQuantizeArgs(
            input=np.full(4, 254, np.float32), output=np.empty(4, np.int8), scale=dtype(0)
        )
        status = plan.can_implement(args)
        assert status.operand == "scale"
        assert "read-only" in status.reason
        args.scale = np.zeros((), dtype)
        plan.run(planq.HOST, None, args)
        assert args.scale == 2


def test_an_export_that_is_a_copy_is_no_output() -> None:
    """DLPack 1 says so by a flag."""

    class Copier(Meddler):
        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options | {"copy": True})

    sample = make_sample()
    args = make_args(SMALL, output=Copier(sample.q, lambda: None))
    status = make_plan(SMALL).can_implement(args)
    assert status.operand == "output"
    assert "copy" in status.reason
    args = make_args(SMALL, input=Copier(np.full(SMALL, 254, np.float32), lambda: None))
    make_plan(SMALL).run(planq.HOST, None, args)
    assert (args.scale == 2).all()
