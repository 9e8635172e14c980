"""A case made ready: memory, a plan, rotated operand sets and their bound launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import torch

import planq
from harness.core.cases import Case, item_bytes
from harness.core.data import (
    PARAMETERS,
    fill_elements,
    fill_parameter,
    fill_state,
    has_blocks,
    number,
)
from harness.formulas.codebook import source_of
from harness.formulas.linear import complete

Launch = Callable[[], object]
Operands = dict[str, Any]  # tensors, lists of tensors and numbers by name

ALIGNMENT = 512
POISON = 0xA5
MOST_COPIES = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one launch: median over samples, with the 10th and 90th percentile.

    A sample is one measurement over ``launches`` launches in a row.
    """

    seconds: float
    low: float
    high: float
    samples: int
    launches: int
    method: str

    @property
    def us(self) -> float:
        """The median in microseconds."""
        return self.seconds * 1e6


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured rate of plain traffic, and how it was reached."""

    bytes_per_second: float
    us: float
    what: str

    @property
    def gbps(self) -> float:
        """Gigabytes (10^9) a second."""
        return self.bytes_per_second / 1e9


def aligned_bytes(nbytes: int, device: str) -> torch.Tensor:
    """New memory at an aligned address."""
    block = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device=device)
    skipped = -block.data_ptr() % ALIGNMENT
    return block[skipped : skipped + nbytes]


class Arena:
    """One block of memory, handed out piece by piece and taken back at once."""

    def __init__(self, nbytes: int, device: str) -> None:
        self.bytes = aligned_bytes(nbytes, device)
        self.used = 0
        self._content: tuple[str, int, Any] = ("", 0, None)

    def take(self, shape: Sequence[int], storage: str, offset: int = 0) -> torch.Tensor:
        """A contiguous tensor, ``offset`` elements past an aligned address."""
        size = item_bytes(storage)
        start = _aligned(self.used) + offset * size
        self.used = start + math.prod(shape) * size
        if self.used > self.bytes.numel():
            raise MemoryError(f"the arena of {self.bytes.numel()} bytes is full")
        return self.bytes[start : self.used].view(getattr(torch, storage)).view(tuple(shape))

    def release(self) -> None:
        """Takes everything back; the content stays."""
        self.used = 0

    def fill(self, dtype: str, distinct: int, source: Any = None) -> None:
        """Fills the block with elements, at least ``distinct`` of them before they repeat.

        ``source`` is the descriptor whose codes they are, where codes have one.
        """
        if self._content == (dtype, distinct, source):
            return
        values = self.bytes.view(getattr(torch, storage_of(dtype)))
        first = values[:distinct]
        fill_elements(first, dtype, source)
        for start in range(distinct, values.numel(), distinct):
            chunk = values[start : start + distinct]
            chunk.copy_(first[: chunk.numel()])
        self._content = dtype, distinct, source

    def forget(self) -> None:
        """Says that pieces of the content were overwritten, which the next case may not want."""
        self._content = "", 0, None

    def poison(self) -> None:
        """Overwrites everything that was handed out."""
        self.bytes[: self.used].fill_(POISON)


def tensors_of(operand: Any) -> list[torch.Tensor]:
    """Those of an operand, which may be a list of them, or a number."""
    listed = operand if isinstance(operand, list) else [operand]
    return [one for one in listed if isinstance(one, torch.Tensor)]


def storage_of(dtype: str) -> str:
    """The torch type that holds elements; small floats as bytes, which every torch hands over."""
    return (
        "uint8" if dtype.startswith(("float8", "float4")) or dtype in ("int4", "uint4") else dtype
    )


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Machine(Protocol):
    """What a backend has to offer to be measured."""

    inputs: Arena
    outputs: Arena
    parameters: Arena
    stream: Any
    cold_bytes: int
    distinct: int
    large_bytes: int

    def measure(self, launches: Sequence[Launch], traffic: int, graphs: bool = True) -> Timing:
        """Times launches that move this many bytes each, over cold memory.

        ``graphs`` says whether they may be captured: whether they keep to the current stream.
        """

    def ceiling(self, reads: int, writes: int, streams: int = 1) -> Rate:
        """The best rate of plain traffic with this mix and total, read from so many arrays."""

    def copy(self, nbytes: int) -> Rate:
        """The rate of a plain copy that reads and writes this many bytes together."""

    def bare(self, case: Case) -> Timing | Rate | None:
        """The time of the least that a kernel has to do on the case's shape, where it is known."""

    def peak(self) -> float | None:
        """Operations a second that its 8-bit products can reach on paper, where that is known."""

    def facts(self) -> dict[str, Any]:
        """What the machine is, for the record."""


def copies_for(machine: Machine, reads: int, writes: int) -> int:
    """Operand sets to rotate, so that a launch finds nothing of its own in a cache."""
    fitting = min(
        machine.inputs.bytes.numel() // (_aligned(reads) + ALIGNMENT),
        machine.outputs.bytes.numel() // (_aligned(writes) + 4 * ALIGNMENT),
    )
    if fitting == 0:
        raise MemoryError(f"no room for {reads} bytes of input and {writes} of output")
    cold = math.ceil(machine.cold_bytes / max(1, reads + writes))
    return min(fitting, MOST_COPIES, max(2, cold))


MIXES: Final = ((16, 1), (8, 1), (4, 1), (2, 1), (1, 1), (1, 2), (1, 4), (1, 8), (1, 16))
READS_ALONE: Final = (8, 0)


def nearest_mix(reads: int, writes: int) -> tuple[int, int]:
    """Bytes read and written by plain traffic, rounded to a mix that is measured.

    Every mix reads something.
    """
    reads = max(reads, 1)
    if reads > 64 * writes:
        return READS_ALONE
    return min(MIXES, key=lambda mix: abs(math.log(mix[0] * writes / (mix[1] * reads))))


def blocks_of(desc: Any, spec: planq.OperandSpec) -> Any:
    """The descriptor, if an operand of it is blocks of GGUF files."""
    return desc if has_blocks(desc) and spec.dtype is planq.DType.UINT8 else None


class Workload:
    """A case with its plan, its operand sets and one bound launch for each set."""

    def __init__(self, machine: Machine, case: Case) -> None:
        machine.inputs.release()
        machine.outputs.release()
        machine.parameters.release()
        source = source_of(case.descriptor, machine.distinct) if case.decodes else None
        source = blocks_of(case.descriptor, case.bulk) or source
        # An odd number for products, whose rows would else come again, and wrong ones be right.
        distinct = machine.distinct - (1 if case.product else 0)
        machine.inputs.fill(case.bulk.dtype.value, distinct, source)
        self.case = case
        self.machine = machine
        self.plan = planq.Plan.select(machine.stream, case.descriptor)
        workspace = self._workspace()
        copies = copies_for(
            machine, case.input_bytes, case.output_bytes + self.plan.workspace_size()
        )
        self.sets = [self._operands() for _ in range(copies)]
        machine.outputs.poison()
        for operands in self.sets:
            self._start(operands)
        args = {info.name: info.args for info in planq.operators()}[case.descriptor.operator]
        self.launches = [
            partial(self.plan.bind(workspace, args(**operands)), machine.stream)
            for operands in self.sets
        ]

    def _workspace(self) -> torch.Tensor | None:
        size = self.plan.workspace_size()
        return self.machine.outputs.take((size,), "uint8") if size else None

    def _operands(self) -> Operands:
        operands: Operands = {}
        for name, spec in self.case.operands.items():
            if spec.kind == "scalar":
                operands[name] = number(spec)
            elif spec.kind == "list":
                operands[name] = [self._take(spec, shape) for shape in spec.shapes]
            else:
                operands[name] = self._take(spec, spec.shape)
        if self.case.product or self.case.outliers is not None:
            complete(operands, self.case.outliers)
        if self.case.outliers is not None:
            self.machine.inputs.forget()
        return operands

    def _take(self, spec: planq.OperandSpec, shape: Sequence[Any]) -> torch.Tensor:
        """Memory of a tensor, with what is read from it alone."""
        parameter = spec.role == "input" and spec.name in PARAMETERS
        arena = self.machine.inputs if spec.role == "input" else self.machine.outputs
        arena = self.machine.parameters if parameter else arena
        taken = arena.take(shape, storage_of(spec.storage), self.case.offset)
        if parameter:
            fill_parameter(taken, spec.name, self.case.descriptor)
        elif self.case.product and arena is self.machine.inputs:
            self._refill(taken, spec)
        return taken

    def _start(self, operands: Operands) -> None:
        """Writes what is updated in place, where it is read."""
        for name, spec in self.case.operands.items():
            if spec.role == "inout" and self.case.is_read(name):
                for values in tensors_of(operands[name]):
                    fill_state(values, name)

    def _refill(self, taken: torch.Tensor, spec: planq.OperandSpec) -> None:
        """Elements of a product that are not of the type that memory was filled with."""
        if spec.dtype is not self.case.bulk.dtype:
            fill_elements(taken, spec.dtype.value, blocks_of(self.case.descriptor, spec))
            self.machine.inputs.forget()

    def measure(self) -> Timing:
        """Times the plan."""
        return self.machine.measure(self.launches, self.case.traffic)
