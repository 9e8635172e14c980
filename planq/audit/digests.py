"""Digests of what kernels write, and those that GPUs gave.

The files of the folder `golden` have what each kernel that promises bits wrote in the fixed cases
on one GPU. All kernels that take a case have to agree, so it has one digest. Every other GPU and
the host have to give it, too.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import planq
from planq.audit.kernels import accepted, is_taken, pinned, spread
from planq.audit.memory import Device
from planq.audit.operators import ADAPTERS, Case, inputs_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

FOLDER: Final = Path(__file__).parent / "golden"


@cache
def recorded() -> dict[str, dict[str, str]]:
    """The digest of each case that a GPU ran, by operator and by the case's id.

    Raises:
        ValueError: Two GPUs gave other digests.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        content: dict[str, Any] = json.loads(path.read_text())
        for operator, entry in content["operators"].items():
            known = found.setdefault(operator, {})
            for case, own in entry["cases"]:
                if known.setdefault(case, own) != own:
                    raise ValueError(f"{path.name}: {operator}: another digest of {case}")
    return found


def check_recorded(device: Device, operator: str, name: str, most: int | None = None) -> int:
    """A kernel gives the recorded digests of the cases that it takes; None: of all of them."""
    known = recorded().get(operator, {})
    cases = [case for case in accepted(operator, name, device.name) if case.id in known]
    if most is None:
        empty = accepted(operator, name, device.name, empty=True)
        cases += [case for case in empty if case.id in known]
    else:
        cases = spread(cases, most)
    for case in cases:
        found = run_digest(device, operator, case, pinned(name))
        assert found == known[case.id], f"{name} on {case.id}: digest {found}, not the recorded"
    return len(cases)


def digest(operands: dict[str, Array]) -> str:
    """SHA-256 over the operands' bytes in the order of their names."""
    total = hashlib.sha256()
    for name in sorted(operands):
        total.update(operands[name].tobytes())
    return total.hexdigest()


def written(
    device: Device, operator: str, case: Case, pref: planq.PlanPreference
) -> dict[str, Array]:
    """Runs a case; its outputs, or none where the kernel refuses operands that lie so."""
    bench = Bench(device, ADAPTERS[operator].descriptor(case.problem), pref=pref)
    if not is_taken(bench):
        return {}
    bench.load(inputs_of(case))
    bench.run()
    return bench.outputs()


def run_digest(device: Device, operator: str, case: Case, pref: planq.PlanPreference) -> str:
    """Runs a case and digests its outputs."""
    return digest(written(device, operator, case, pref))


def digest_of_cases(device: Device, operator: str, name: str, count: int) -> str:
    """SHA-256 over what a kernel writes in some of its cases, where they lie close together."""
    found: dict[str, Array] = {}
    for case in spread(accepted(operator, name, device.name), count):
        outputs = written(device, operator, case, pinned(name))
        found |= {f"{case.id}: {output}": values for output, values in outputs.items()}
    return digest(found)
