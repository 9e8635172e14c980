"""The checks of where a kernel runs: graphs, streams, devices, and the host itself."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import planq
from planq import _core
from planq.audit.digests import digest_of_cases, written
from planq.audit.kernels import (
    PROMISE,
    accepted,
    accepts,
    is_taken,
    pinned,
    some,
    spread,
)
from planq.audit.memory import Device, Host
from planq.audit.operators import ADAPTERS, Case, expected, inputs_of
from planq.audit.promises import judge_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

REPLAYS: Final = 3
INSTRUCTION_SET: Final = "PLANQ_INSTRUCTION_SET"


def benches(
    device: Device, operator: str, name: str, cases: list[Case]
) -> list[tuple[Case, Bench]]:
    """A bench for each case whose operands the kernel takes as they lie."""
    pref = pinned(name)
    found = [
        (case, Bench(device, ADAPTERS[operator].descriptor(case.problem), pref=pref))
        for case in cases
    ]
    return [(case, bench) for case, bench in found if is_taken(bench)]


def check_captured(device: Any, operator: str, name: str, most: int = 2) -> int:
    """The first run of a plan is captured in a graph; replays have the bits of what they find."""
    held = 0
    for case, bench in benches(device, operator, name, some(device, operator, name, most)):
        replay = device.captured(
            lambda stream, bench=bench: bench.plan.run(stream, bench.workspace.argument, bench.args)
        )
        for other in (case.reseeded(seed) for seed in range(REPLAYS)):
            bench.load(inputs_of(other))
            replay()
            device.synchronize()
            check_outputs(bench, other, f"{name} replayed on {other.id}")
            held += 1
    return held


def check_outputs(bench: Bench, case: Case, what: str) -> None:
    """What a run has written is what its plan promises of the case."""
    inputs = inputs_of(case)
    bench.check(inputs, expected(case), what, judge_of(bench.plan, case, inputs))


def check_busy(device: Any, operator: str, name: str, most: int = 1) -> int:
    """Blocks that come late and in other orders, beside a load on another stream."""
    cases = accepted(operator, name, device.name)
    largest = sorted(cases, key=lambda case: case.size)[-most:]
    held = 0
    for case, bench in benches(device, operator, name, largest):
        for _ in range(2):
            bench.load(inputs_of(case))
            device.keep_busy()  # last, so that it is not over when the run begins
            bench.run()
            check_outputs(bench, case, f"{name} beside a load: {case.id}")
            held += 1
    return held


def check_order(device: Any, operator: str, name: str, most: int = 1) -> int:
    """A run reads what its stream has written before it, however late that is."""
    held = 0
    for case, bench in benches(device, operator, name, some(device, operator, name, most)):
        inputs = inputs_of(case)
        bench.load(inputs)
        given = [place for place, role in bench.roles.items() if role != "output"]
        late = [bench.operands[place].write_later(inputs[place]) for place in given]
        device.delay()
        for write in late:
            write()
        bench.run()
        check_outputs(bench, case, f"{name} after a load: {case.id}")
        held += 1
    return held


def check_devices(device: Any, operator: str, name: str, most: int = 2) -> int:
    """Every other GPU of this machine writes the same bits."""
    held = 0
    cases = some(device, operator, name, most)
    for other in others(device.name):
        # A GPU of another architecture may not have the kernel.
        for case in [each for each in cases if accepts(operator, name, each.problem, other)]:
            same(
                written(device, operator, case, pinned(name)),
                written(type(device)(other), operator, case, pinned(name)),
                f"{name} on {case.id}: {other}",
            )
            held += 1
    return held


def others(name: str) -> list[str]:
    """The other GPUs of the machine."""
    return [other for each in planq.devices() if (other := f"cuda:{each.index}") != name]


def check_host(device: Device, operator: str, name: str, most: int | None = None) -> int:
    """The kernel that the host selects writes the same bits; None: in every third case."""
    cases = accepted(operator, name, device.name)
    chosen = list(cases[::3]) if most is None else spread(cases, most)
    held = 0
    for case in chosen:
        if found := written(device, operator, case, pinned(name)):
            same(found, host_outputs(operator, case), f"{name} on {case.id}: the host")
            held += 1
    return held


@cache
def host_outputs(operator: str, case: Case) -> dict[str, Array]:
    """What the host backend writes for a case."""
    return written(Host(), operator, case, PROMISE)


def same(found: dict[str, Array], other: dict[str, Array], what: str) -> None:
    """Two runs wrote the same bits."""
    assert found.keys() == other.keys(), what
    for name, values in found.items():
        assert values.tobytes() == other[name].tobytes(), f"{what} writes another {name}"


def widest() -> str:
    """The widest instruction set that host kernels use in this process."""
    return str(_core.instruction_sets()[-1])


def narrower() -> list[str]:
    """The instruction sets that host kernels can be limited to here, the widest left out."""
    return list(_core.instruction_sets())[:-1]


def check_instruction_sets(operator: str, name: str, most: int = 2) -> int:
    """A process that is limited to a narrower instruction set writes the same bits."""
    wrote = digest_of_cases(Host(), operator, name, most)
    for limit in narrower():
        process = limited(limit)
        try:
            process.send((operator, name, most))
            other = process.recv()
        except (EOFError, BrokenPipeError):
            raise AssertionError(f"{name} ends a process with {limit}") from None
        assert other == wrote, f"{name} writes other bits with {limit}"
    return most * len(narrower())


def serve(asked: Connection) -> None:
    """Answers what a host kernel writes, until nobody asks any more."""
    asked.send(widest())
    with suppress(EOFError):
        while True:
            operator, name, most = asked.recv()
            asked.send(digest_of_cases(Host(), operator, name, most))


@cache
def limited(instruction_set: str) -> Connection:
    """A process whose host kernels use no wider instruction set: what it is told as it begins.

    It ends with this one.
    """
    context = get_context("spawn")
    here, there = context.Pipe()
    before = os.environ.get(INSTRUCTION_SET)
    os.environ[INSTRUCTION_SET] = instruction_set
    try:
        context.Process(target=serve, args=(there,), daemon=True).start()
    finally:
        if before is None:
            del os.environ[INSTRUCTION_SET]
        else:
            os.environ[INSTRUCTION_SET] = before
    there.close()
    used = here.recv()
    assert used == instruction_set, f"a process limited to {instruction_set} uses {used}"
    return here
