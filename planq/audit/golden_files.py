"""Golden digests: what each kernel wrote on one GPU for the fixed cases, as SHA-256.

The file names the GPU and the build. It has every case's digest once, because all kernels that take
a case and promise bits must agree on it, and for each SKU and each of its bodies the cases that it
ran:

    {"device": ..., "build_id": ..., "source_id": ..., "flags": ..., "cuda_flags": ...,
     "operators": {name: {"cases": [[id, digest], ...],
                          "skus": {sku: {"revision": n, "bodies": {name: "0-3,7"}}}}}}

``planq audit --record`` writes it. ``planq audit --check`` compares kernels with those of the
package.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import planq
from planq.audit import kernels
from planq.audit.digests import run_digest
from planq.audit.memory import Device
from planq.audit.operators import Case, all_cases, name_of

# Processes that record side by side, and the kernels that each runs at a time.
PROCESSES, KERNELS_A_JOB = 8, 8
# What a file says of the build.
BUILD: Final = ("build_id", "source_id", "flags", "cuda_flags")


def digested_kernels() -> Iterator[tuple[str, planq.KernelInfo]]:
    """The CUDA kernels that promise bits, with the names of their operators; others have none."""
    for operator, kernel in kernels.kernels(planq.Backend.CUDA):
        if kernel.guarantee.determinism is planq.Determinism.BIT_EXACT:
            yield operator, kernel


def spans(numbers: Iterable[int]) -> str:
    """`[0, 1, 2, 7]` as `"0-2,7"`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in found)


def numbers(text: str) -> list[int]:
    """`"0-2,7"` as `[0, 1, 2, 7]`."""
    parts = [part.partition("-") for part in text.split(",")]
    return [n for a, _, b in parts for n in range(int(a), int(b or a) + 1)]


@dataclass(frozen=True)
class Job:
    """Kernels of an operator that one process runs."""

    device: Device
    operator: str
    names: tuple[str, ...]


def run_job(job: Job) -> dict[str, dict[int, str]]:
    """The digests of each kernel, by the numbers of the cases that it takes."""
    device, operator = job.device, job.operator
    return {
        name: {
            number: run_digest(device, operator, case, kernels.pinned(name))
            for number, case in enumerate(all_cases(operator))
            if kernels.accepts(operator, name, case.problem, device.name)
        }
        for name in job.names
    }


def make_jobs(device: Device) -> list[Job]:
    """Jobs of a few kernels, so that no process ends long after the others."""
    by_operator: dict[str, list[str]] = {}
    for operator, kernel in digested_kernels():
        by_operator.setdefault(operator, []).append(name_of(kernel))
    return [
        Job(device, operator, tuple(names[first : first + KERNELS_A_JOB]))
        for operator, names in by_operator.items()
        for first in range(0, len(names), KERNELS_A_JOB)
    ]


def join(
    digests: dict[int, str], name: str, found: dict[int, str], cases: tuple[Case, ...]
) -> None:
    """Adds what a kernel wrote; fails where it disagrees with the kernels before it."""
    for number, digest_of_case in found.items():
        known = digests.setdefault(number, digest_of_case)
        assert known == digest_of_case, f"{name} disagrees on {cases[number].id}"


def record(
    device: Device, name: str, told: Callable[[int, int], None] = lambda done, all_jobs: None
) -> dict[str, Any]:
    """The whole file's content for the kernels on a GPU, which several processes run.

    Args:
        device: Where they run.
        name: What the GPU is called.
        told: Called with how many jobs are done, and how many there are.

    Raises:
        AssertionError: Kernels that take the same case wrote other bits, or none takes it.
    """
    jobs = make_jobs(device)
    revisions = {kernel.sku: kernel.revision for _, kernel in digested_kernels()}
    operators: dict[str, Any] = {}
    workers = max(1, min(PROCESSES, (os.cpu_count() or 1) // 2))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (job, found) in enumerate(zip(jobs, pool.map(run_job, jobs), strict=True)):
            told(number + 1, len(jobs))
            entry = operators.setdefault(job.operator, {"digests": {}, "skus": {}})
            for kernel, taken in found.items():
                join(entry["digests"], kernel, taken, all_cases(job.operator))
                sku, _, body = kernel.partition(":")
                promised = {"revision": revisions[sku], "bodies": {}}
                entry["skus"].setdefault(sku, promised)["bodies"][body] = spans(taken)
    for operator, entry in operators.items():
        digests = entry.pop("digests")
        cases = all_cases(operator)
        entry["cases"] = [[case.id, digests[n]] for n, case in enumerate(cases) if n in digests]
        assert len(entry["cases"]) == len(cases), f"{operator}: cases that no kernel takes"
    build = planq.build_info()
    return {
        "device": name,
        **{each: getattr(build, each) for each in BUILD},
        "operators": operators,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes the file, with each case on one line."""
    text = json.dumps(content, indent=1, sort_keys=True)
    path.write_text(re.sub(r'\[\s+("[^"]*"),\s+("[^"]*")\s+\]', r"[\1, \2]", text) + "\n")
