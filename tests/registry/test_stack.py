"""Every run on the host makes do with 64 KB of stack, on the caller's thread and on helpers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, Case, inputs_of, name_of
from planq.audit.runner import Bench
from support import small_stacks
from support.alike import representatives
from support.stack import StackProbe

LIMIT = 64 << 10
THREADS = 3
HOST_KERNELS = {
    name_of(kernel): operator for operator, kernel in kernels.kernels(planq.Backend.HOST)
}
WHOLE = representatives(HOST_KERNELS)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> StackProbe:
    """Compiled once."""
    return StackProbe(tmp_path_factory.mktemp("stack"))


@pytest.mark.parametrize("nbytes", [10_000, LIMIT, 300_000])
def test_the_probe_finds_a_known_depth(probe: StackProbe, nbytes: int) -> None:
    """Or its answers would mean nothing."""
    assert nbytes <= probe.of_known(nbytes) <= nbytes + 512


def depth(probe: StackProbe, name: str, case: Case, threads: int) -> int:
    """Of one run."""
    desc = OPERATORS[HOST_KERNELS[name]].descriptor(case.problem)
    bench = Bench(Host(threads), desc, pref=kernels.pinned(name))
    bench.load(inputs_of(case))
    return probe.of_call(bench.plan.run, bench.stream, bench.workspace.argument, bench.args)


@pytest.mark.parametrize("name", HOST_KERNELS)
def test_the_calling_thread_needs_64_kb_at_most(probe: StackProbe, name: str) -> None:
    """With helpers and without; what Python itself uses is within the limit."""
    cases = kernels.accepted(HOST_KERNELS[name], name, "host")
    most = 4 if name in WHOLE else 1
    largest = sorted(cases, key=lambda case: case.size)[-most:]
    runs = [(case, THREADS) for case in {*largest, *kernels.spread(cases, most)}]
    runs += [(case, 1) for case in kernels.spread(cases, (most + 1) // 2)]
    for case, threads in runs:
        used = depth(probe, name, case, threads)
        assert used <= LIMIT, f"{name} on {case.id}: {used} bytes with {threads} threads"


def test_helpers_need_64_kb_at_most() -> None:
    """In a process of its own, whose helpers get stacks of that size."""
    tests = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-P", small_stacks.__file__, str(LIMIT), str(THREADS)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"ended with {done.returncode} in {last}\n{done.stderr}"
    assert last == ["all rows ran"]
