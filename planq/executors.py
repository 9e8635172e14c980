"""Runs plans on operands in host memory: on the host, or on a GPU through cuda.core.

This is for programs that hold operands as bytes: the command line, checkpoints and the audit. It
copies, waits for the device and measures time, which plans never do.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

import planq
from planq._nearest import did_you_mean
from planq._policy import in_force
from planq.errors import PlanqError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Only BIT_EXACT gives the same bits on every device.
PREFERENCE = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)

Bytes = npt.NDArray[np.uint8]
Tensor = tuple[int, tuple[int, ...], None, str, str]


class DeviceError(PlanqError):
    """There is no such device, or a call to it failed. The message is one complete line."""

    code = "device"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run left on the host.

    Attributes:
        outputs: The bytes of each output operand, by its name.
        seconds: The time that the plan's run took on its stream, without copies.
    """

    outputs: dict[str, Bytes]
    seconds: float


@dataclass(frozen=True, slots=True)
class Placed:
    """Bytes where a plan can use them.

    Attributes:
        pointer: Their address there.
        fetch: Waits for the device, and returns them as they are then.
    """

    pointer: int
    fetch: Callable[[], Bytes]


class Executor(Protocol):
    """A device that runs plans on operands that lie in host memory."""

    @property
    def name(self) -> str:
        """The device as the user named it."""

    @property
    def stream(self) -> Any:
        """The stream that plans are selected for and run on."""

    def run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], **extents: int) -> Ran:
        """Runs a plan on the bytes of its input operands; its dims get their extents by name."""

    def placed(self, data: Bytes) -> contextlib.AbstractContextManager[Placed]:
        """Brings bytes to the device for a ``with`` block; ``data`` may be used for it."""


class HostExecutor:
    """Runs plans on the host, on the memory in which the operands lie.

    Args:
        threads: Threads to use; None leaves it to planq.
    """

    name = "host"

    def __init__(self, threads: int | None = None) -> None:
        self.stream: Any = planq.HOST if threads is None else planq.host_stream(threads=threads)

    def run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], **extents: int) -> Ran:
        """Runs a plan on the bytes of its input operands; its dims get their extents by name."""
        operands = _operands(plan, extents)
        outputs = _empty_outputs(operands)
        pointers = {name: _pointer(data) for name, data in {**inputs, **outputs}.items()}
        scratch, workspace = host_workspace(plan.workspace_size(**extents))
        args = _args(plan, operands, pointers, self.name)
        start = time.perf_counter()
        plan.run(self.stream, workspace, args)
        seconds = time.perf_counter() - start
        del scratch
        return Ran(outputs, seconds)

    @contextlib.contextmanager
    def placed(self, data: Bytes) -> Iterator[Placed]:
        """Yields the bytes where they are."""
        yield Placed(_pointer(data), lambda: data)


class CudaExecutor:
    """Copies operands to a GPU, runs the plan there and copies the outputs back.

    Args:
        index: The CUDA device.

    Raises:
        DeviceError: This build, this machine or this environment has no such device.
    """

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        require_device(index)
        try:
            self._core: Any = importlib.import_module("cuda.core")
        except ModuleNotFoundError as error:
            needs = "needs the package 'cuda-core': pip install 'planq[cuda]'"
            raise DeviceError(f"--device {self.name} {needs}") from error
        with self._device_errors():
            self._device: Any = self._core.Device(index)
            self._device.set_current()
            self.stream: Any = self._device.create_stream()
            timed = self._core.EventOptions(timing_enabled=True)
            self._events = [self._device.create_event(options=timed) for _ in range(2)]

    def run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], **extents: int) -> Ran:
        """Runs a plan on the bytes of its input operands; its dims get their extents by name."""
        operands = _operands(plan, extents)
        outputs = _empty_outputs(operands)
        with self._device_errors(), contextlib.ExitStack() as held:
            buffers = {
                name: held.enter_context(self._buffer(spec.nbytes))
                for name, spec in operands.items()
            }
            need = plan.workspace_size(**extents)
            scratch = held.enter_context(self._buffer(need))
            workspace = (int(scratch.handle), need) if need else None
            for name, data in inputs.items():
                self._copy(buffers[name], self._host_buffer(data), data.size)
            pointers = {name: int(buffer.handle) for name, buffer in buffers.items()}
            self.stream.record(self._events[0])
            plan.run(self.stream, workspace, _args(plan, operands, pointers, self.name))
            self.stream.record(self._events[1])
            for name, data in outputs.items():
                self._copy(self._host_buffer(data), buffers[name], data.size)
            self.stream.sync()
            seconds = (self._events[1] - self._events[0]) / 1e3
        return Ran(outputs, seconds)

    def new_stream(self) -> Any:
        """Another stream of the device."""
        with self._device_errors():
            self._device.set_current()
            return self._device.create_stream()

    @contextlib.contextmanager
    def placed(self, data: Bytes) -> Iterator[Placed]:
        """Copies bytes to a buffer, and frees it after the ``with`` block."""
        with self._device_errors(), self._buffer(data.size) as buffer:
            self.upload(buffer, data)

            def fetch() -> Bytes:
                self.download(data, buffer)
                return data

            yield Placed(int(buffer.handle), fetch)

    def allocate(self, nbytes: int) -> Any:
        """A buffer on the device, which the caller closes on :attr:`stream`."""
        with self._device_errors():
            self._device.set_current()
            return self._device.allocate(max(nbytes, 1), stream=self.stream)

    def upload(self, target: Any, data: Bytes) -> None:
        """Copies bytes to a buffer, and waits."""
        with self._device_errors():
            self._copy(target, self._host_buffer(data), data.size)
            self.stream.sync()

    def download(self, data: Bytes, source: Any) -> None:
        """Copies a buffer's bytes to the host, after all work of the stream, and waits."""
        with self._device_errors():
            self._copy(self._host_buffer(data), source, data.size)
            self.stream.sync()

    @contextlib.contextmanager
    def _device_errors(self) -> Iterator[None]:
        """Turns driver errors into `DeviceError`; their binding has no public class for them."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith("cuda."):
                raise
            raise DeviceError(f"{self.name}: {error}") from error

    @contextlib.contextmanager
    def _buffer(self, nbytes: int) -> Iterator[Any]:
        buffer = self.allocate(nbytes)
        try:
            yield buffer
        finally:
            buffer.close(self.stream)

    def _host_buffer(self, data: Bytes) -> Any:
        return self._core.Buffer.from_handle(_pointer(data), data.size, owner=data)

    def _copy(self, target: Any, source: Any, nbytes: int) -> None:
        if nbytes:
            target.copy_from(source, stream=self.stream)


def open_device(name: str) -> Executor:
    """Returns the executor that ``--device`` names.

    Args:
        name: ``host`` or ``cuda:N``.

    Raises:
        DeviceError: The name is not of that form, or there is no such device.
    """
    if name == "host":
        return HostExecutor()
    matched = re.fullmatch(r"cuda:([0-9]{1,9})", name)
    if matched is None:
        hint = did_you_mean(name, ("host", "cuda:0"))
        raise DeviceError(f"--device: expected host or cuda:N, got {name!r}{hint}")
    return CudaExecutor(int(matched[1]))


def plan_selector(executor: Executor) -> Callable[[planq.Descriptor], planq.Plan]:
    """Returns a function that selects plans for a device; equal descriptors share a plan.

    They share it under one policy.
    """
    kept = functools.cache(lambda desc, _: planq.Plan.select(executor.stream, desc, PREFERENCE))
    return lambda desc: kept(desc, in_force())


def require_device(index: int) -> None:
    """Raises DeviceError if this build or this machine has no such CUDA device."""
    if not planq.build_info().cuda:
        raise DeviceError(f"--device cuda:{index}: this build of planq has no CUDA backend")
    found = [device.index for device in planq.devices()]
    if index not in found:
        have = ", ".join(f"cuda:{known}" for known in found) or "no CUDA device"
        raise DeviceError(f"--device cuda:{index}: not on this machine, which has {have}")


def _operands(plan: planq.Plan, extents: dict[str, int]) -> dict[str, planq.OperandSpec]:
    """The specification of each operand in a call with these extents."""
    return {
        name: replace(
            spec,
            shape=tuple(
                extents[item.name] if isinstance(item, planq.Dim) else item for item in spec.shape
            ),
        )
        for name, spec in plan.descriptor.operands().items()
    }


def _empty_outputs(operands: dict[str, planq.OperandSpec]) -> dict[str, Bytes]:
    return {
        name: np.empty(spec.nbytes, np.uint8)
        for name, spec in operands.items()
        if spec.role is planq.Role.OUTPUT
    }


def _args(
    plan: planq.Plan,
    operands: dict[str, planq.OperandSpec],
    pointers: dict[str, int],
    device: str,
) -> Any:
    """Makes args from raw pointers; no array library has all of the element types."""
    tensors: dict[str, Tensor] = {
        name: (pointers[name], spec.extents, None, spec.storage, device)
        for name, spec in operands.items()
    }
    classes = {operator.name: operator.args for operator in planq.operators()}
    return classes[plan.descriptor.operator](**tensors)


def _pointer(data: Bytes) -> int:
    return int(data.__array_interface__["data"][0])


def host_workspace(nbytes: int) -> tuple[Bytes, tuple[int, int] | None]:
    """Makes a workspace in host memory.

    Args:
        nbytes: The size that the plan asks for, in bytes.

    Returns:
        The memory, which the caller keeps alive, and its aligned part as (pointer, bytes) for the
        plan; the latter is None if ``nbytes`` is 0.
    """
    scratch = np.empty(nbytes + planq.WORKSPACE_ALIGNMENT, np.uint8)
    start = _pointer(scratch)
    aligned = start + -start % planq.WORKSPACE_ALIGNMENT
    return scratch, (aligned, nbytes) if nbytes else None
