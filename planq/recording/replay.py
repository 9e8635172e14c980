"""Recomputes recorded runs on a device, and compares digests of what they write."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import planq
from planq.dtypes import Backend, Determinism, OperandKind, Role
from planq.executors import PREFERENCE
from planq.machine import device_name
from planq.recording.records import Operand, RecordError, Records, Run

if TYPE_CHECKING:
    from planq.descriptor import OperandSpec
    from planq.executors import Executor
    from planq.recording.ring import Bytes

_POISON: Final = 0xA5

Key = tuple[str, int]


class State(StrEnum):
    """What a comparison says."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not_comparable"


@dataclass(frozen=True, slots=True)
class Difference:
    """An operand whose bits are others than the recorded ones.

    Attributes:
        operand: The operand, as in ``params[3]``.
        recorded: SHA-256 of what the recorded run wrote.
        found: SHA-256 of what was written here.
    """

    operand: str
    recorded: str
    found: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One run.

    Attributes:
        run: The recorded run.
        state: Whether the bits are equal.
        sku: The kernel that recomputed it; None if none did.
        reason: Why it is not comparable; otherwise empty.
        differences: The operands that differ.
    """

    run: Run
    state: State
    sku: str | None = None
    reason: str = ""
    differences: list[Difference] = field(default_factory=list)


def compare(records: Records, run: Run, executor: Executor) -> Compared:
    """Recomputes a run.

    Raises:
        RecordError: The record is damaged.
        DeviceError: The device failed.
    """
    check_operands(run)
    plan, reason = _plan_for(run, executor)
    if plan is None:
        return Compared(run, State.NOT_COMPARABLE, reason=reason)
    differences = [
        Difference(operand.place, operand.after or "", found)
        for operand, found in _recomputed(records, run, plan, executor)
        if operand.after != found
    ]
    state = State.DIFFERS if differences else State.EQUAL
    return Compared(run, state, plan.sku, differences=differences)


def _plan_for(run: Run, executor: Executor) -> tuple[planq.Plan | None, str]:
    """A plan that owes the recorded bits; or None, and why there is none."""
    backend = Backend.HOST if executor.name == "host" else Backend.CUDA
    if run.determinism is Determinism.NOT_GUARANTEED:
        return None, "the plan promised nothing about its bits"
    try:
        plan = planq.Plan.select(executor.stream, run.descriptor, run.preference)
    except (planq.NoKernelError, planq.DescriptorError):
        plan = None
    same = plan is not None and (plan.sku, plan.revision) == (run.sku, run.revision)
    if same and backend is run.backend and _owed(run, plan):
        return plan, ""
    if run.determinism is not Determinism.BIT_EXACT:
        return None, f"{run.determinism.name} is no promise for {executor.name} and this build"
    try:
        return planq.Plan.select(executor.stream, run.descriptor, PREFERENCE), ""
    except planq.NoKernelError:
        return None, f"no kernel for {executor.name} is {Determinism.BIT_EXACT.name}"


def _owed(run: Run, plan: Any) -> bool:
    """Whether the recorded promise holds for the same kernel on the plan's device."""
    if run.determinism is not Determinism.RUN_TO_RUN:
        return bool(plan.precision_guarantee().determinism >= run.determinism)
    same_build = planq.build_info().build_id == run.build_id
    return same_build and device_name(plan.device) == run.device


# --- Operands


def check_operands(run: Run) -> None:
    """Refuses operands that are not those of the run's descriptor.

    Raises:
        RecordError: An operand is missing, unknown, there twice or of another kind.
    """
    specs = run.descriptor.operands()
    members: dict[str, list[int]] = {}
    for operand in run.operands:
        spec = specs.get(operand.name)
        if spec is None:
            raise _wrong(run, operand.name, f"{run.descriptor.operator} has no such operand")
        _check_operand(run, operand, spec)
        members.setdefault(operand.name, []).append(operand.member)
    for name, spec in specs.items():
        wanted = list(range(len(spec.shapes))) if spec.kind is OperandKind.LIST else [-1]
        if members.get(name, [] if spec.optional else None) not in (wanted, []):
            raise _wrong(run, name, f"expected {len(wanted)} of it, once each and in order")


def _check_operand(run: Run, operand: Operand, spec: OperandSpec) -> None:
    if operand.bits is not None:
        if spec.kind is not OperandKind.SCALAR or spec.role is not Role.INPUT:
            raise _wrong(run, operand.place, "expected a tensor, got a number")
        return
    wanted = (spec.role is not Role.OUTPUT, spec.role is not Role.INPUT)
    if (operand.before is not None, operand.after is not None) != wanted:
        raise _wrong(run, operand.place, f"expected the digests of an operand that is {spec.role}")


def _wrong(run: Run, operand: str, words: str) -> RecordError:
    return RecordError(f"{run.path}: {operand}: {words}")


def _extents(run: Run) -> dict[str, int]:
    """The extents of the plan's dims; wrong ones are refused when the plan sees the operands."""
    specs = run.descriptor.operands()
    return {
        item.name: extent
        for operand in run.operands
        for item, extent in zip(specs[operand.name].shape, operand.shape, strict=False)
        if isinstance(item, planq.Dim)
    }


def _value(run: Run, operand: Operand) -> Any:
    """The number that a scalar by value had."""
    bits = operand.bits or 0
    if operand.dtype == "float64":
        return struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    if operand.dtype == "bool" and bits > 1:
        raise _wrong(run, operand.place, "expected 0 or 1")
    return bool(bits) if operand.dtype == "bool" else bits


# --- The run


def _recomputed(
    records: Records, run: Run, plan: planq.Plan, executor: Executor
) -> list[tuple[Operand, str]]:
    """Each operand that is written, with the SHA-256 of its bytes after the run."""
    need = _workspace_bytes(run, plan)
    _check_size(run, need)
    with contextlib.ExitStack() as held:
        placed = {
            (each.name, each.member): held.enter_context(
                executor.placed(_bytes_before(records, run, each))
            )
            for each in run.operands
            if each.bits is None
        }
        scratch = held.enter_context(
            executor.placed(np.empty(need + planq.WORKSPACE_ALIGNMENT, np.uint8))
        )
        aligned = scratch.pointer + -scratch.pointer % planq.WORKSPACE_ALIGNMENT
        pointers = {key: each.pointer for key, each in placed.items()}
        args = _args(run, pointers, executor.name)
        try:
            plan.run(executor.stream, (aligned, need) if need else None, args)
        except planq.ArgumentError as error:
            raise RecordError(f"{run.path}: {error}") from None
        written = [each for each in run.operands if each.after is not None]
        fetched = [(each, placed[each.name, each.member].fetch()) for each in written]
        return [(each, hashlib.sha256(data.data).hexdigest()) for each, data in fetched]


def _workspace_bytes(run: Run, plan: planq.Plan) -> int:
    try:
        return plan.workspace_size(**_extents(run))
    except (planq.DescriptorError, TypeError) as error:
        raise RecordError(f"{run.path}: {error}") from None


def _check_size(run: Run, workspace: int) -> None:
    """Refuses a run that no process could have had in memory here."""
    need = sum(each.nbytes for each in run.operands) + workspace
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > have:
        raise RecordError(f"{run.path}: it takes {need} bytes, this machine has {have}")


def _bytes_before(records: Records, run: Run, operand: Operand) -> Bytes:
    if operand.before is not None:
        return records.blob(run, operand)
    return np.full(operand.nbytes, _POISON, np.uint8)


def _args(run: Run, pointers: dict[Key, int], device: str) -> Any:
    """The args of the run's operator, made of pointers and numbers."""
    given: dict[str, Any] = {}
    for each in run.operands:
        if each.bits is not None:
            given[each.name] = _value(run, each)
            continue
        tensor = (pointers[each.name, each.member], each.shape, None, each.dtype, device)
        if each.member < 0:
            given[each.name] = tensor
        else:
            given.setdefault(each.name, []).append(tensor)
    classes = {operator.name: operator.args for operator in planq.operators()}
    return classes[run.descriptor.operator](**given)
