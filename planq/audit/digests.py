"""Digests of what kernels write."""

from __future__ import annotations

import hashlib

import planq
from planq.audit.memory import Device
from planq.audit.operators import ADAPTERS, Case, inputs_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench


def digest(operands: dict[str, Array]) -> str:
    """SHA-256 over the operands' bytes in the order of their names."""
    total = hashlib.sha256()
    for name in sorted(operands):
        total.update(operands[name].tobytes())
    return total.hexdigest()


def run_digest(device: Device, operator: str, case: Case, pref: planq.PlanPreference) -> str:
    """Runs a case and digests its outputs."""
    bench = Bench(device, ADAPTERS[operator].descriptor(case.problem), pref=pref)
    bench.load(inputs_of(case))
    bench.run()
    return digest(bench.outputs())
