"""The report of an audit: JSON that can be handed over, compared and repeated.

What a report has as evidence depends on the build, the devices' kinds and the cases alone, so an
audit that is repeated gives the same bytes of it. Its SHA-256 stands beside it. The machine and
the time are apart.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import planq
from planq.audit.claims import CLAIMS
from planq.audit.models import models
from planq.audit.operators import all_cases
from planq.audit.sections import HELD, REFUTED, Audited
from planq.signatures import canonical as canonical

FORMAT: Final = 1
INCOMPLETE: Final = "incomplete"
Report = dict[str, Any]


def evidence(
    audited: Sequence[Audited], dropped: Sequence[str], depth: str, probes: Sequence[Report]
) -> Report:
    """What was found, without anything that differs when it is found again."""
    return {
        "build": _plain(planq.build_info()),
        "depth": depth,
        "claims": {
            claim.name: claim.says
            for claim in CLAIMS
            if not audited or any(claim.name == each.claim for each in audited[0].outcomes)
        },
        "models": models(),
        "cases": {name: _cases(name) for name in dict.fromkeys(each.operator for each in audited)},
        "kernels": [_kernel(each, depth) for each in audited],
        "dropped": list(dropped),
        "tensor_cores": list(probes),
    }


def report(
    found: Report, machine: Report, written: str, seconds: float, materials: Report | None = None
) -> Report:
    """The whole report of some evidence; `materials` is a bill of them."""
    return {
        "format": FORMAT,
        "verdict": verdict(found),
        "evidence": found,
        "evidence_sha256": hashlib.sha256(canonical(found)).hexdigest(),
        "machine": machine,
        "materials": materials or {},
        "written": written,
        "seconds": round(seconds, 1),
    }


def is_report(content: Any) -> bool:
    """Whether JSON that anybody may have made has the parts that are compared."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return False
    found = content.get("evidence")
    kernels = found.get("kernels") if isinstance(found, dict) else None
    if not isinstance(kernels, list) or not isinstance(content.get("evidence_sha256"), str):
        return False
    names = ("device", "sku", "body")
    return all(
        isinstance(kernel, dict) and all(isinstance(kernel.get(name), str) for name in names)
        for kernel in kernels
    )


def verdict(found: Report) -> str:
    """:data:`HELD`, or :data:`REFUTED` if one claim is, or :data:`INCOMPLETE`."""
    states = {each["state"] for kernel in found["kernels"] for each in kernel["claims"].values()}
    if REFUTED in states or not all(probe["confirmed"] for probe in found["tensor_cores"]):
        return REFUTED
    return INCOMPLETE if found["dropped"] or not found["kernels"] else HELD


def counts(kernels: Sequence[Report]) -> Counter[str]:
    """How many claims of some kernels have each state, and how many runs held."""
    total: Counter[str] = Counter()
    for kernel in kernels:
        for each in kernel["claims"].values():
            total[each["state"]] += 1
            total["runs"] += each.get("runs", 0)
    return total


def by_operator(found: Report) -> dict[tuple[str, str], list[Report]]:
    """Kernels by device and operator."""
    grouped: dict[tuple[str, str], list[Report]] = {}
    for kernel in found["kernels"]:
        grouped.setdefault((kernel["device"], kernel["operator"]), []).append(kernel)
    return grouped


def differences(first: Report, second: Report) -> Iterator[tuple[str, Any, Any]]:
    """Where two reports differ: a path, and what either has there; None where it has nothing."""
    left, right = dict(_leaves(_comparable(first))), dict(_leaves(_comparable(second)))
    for path in sorted(left.keys() | right.keys()):
        if left.get(path) != right.get(path):
            yield path, left.get(path), right.get(path)


def _comparable(content: Report) -> Report:
    """A report whose kernels have names instead of numbers."""
    found = dict(content["evidence"])
    found["kernels"] = {
        f"{kernel['device']} {kernel['sku']}:{kernel['body']}": kernel
        for kernel in found["kernels"]
    }
    return {**content, "evidence": found}


def _leaves(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{path} > {key}" if path else str(key))
    else:
        yield path, content


def _cases(operator: str) -> Report:
    """How many cases there are, and a digest of their names, which have shapes, types and seeds."""
    names = [case.id for case in all_cases(operator)]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return {"count": len(names), "sha256": digest}


def _kernel(each: Audited, depth: str) -> Report:
    kernel = each.kernel
    return {
        "device": each.device,
        "operator": each.operator,
        "sku": kernel.sku,
        "body": kernel.body,
        "revision": kernel.revision,
        "guarantee": _plain(kernel.guarantee),
        "digest": each.digest,
        "claims": {
            outcome.claim: {
                "state": outcome.state,
                **({"runs": outcome.runs} if outcome.runs else {}),
                **({"note": outcome.note} if outcome.note else {}),
            }
            for outcome in each.outcomes
        },
        "repeat": f"planq audit --device {each.device} --operators '^{each.operator}$' --{depth}",
    }


def _plain(value: Any) -> Any:
    """Dataclasses and enumerations as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, planq.Determinism):
        return value.name
    return getattr(value, "value", value)
