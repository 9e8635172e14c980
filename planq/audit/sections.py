"""Holds every kernel of a build to what it promises, on the devices at hand.

The audit is made of sections, one for each device and operator. Their cases are fixed, so two
audits of one build have the same outcomes. A time budget drops whole sections, never cases.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

import planq
from planq.audit import kernels
from planq.audit.claims import CLAIMS, Claim, Most
from planq.audit.digests import digest_of_cases
from planq.audit.memory import Device, Host
from planq.audit.operators import name_of

HELD: Final = "held"
REFUTED: Final = "refuted"
NOT_TESTABLE: Final = "not testable"
# Cases of a claim in a quick audit, and those whose outputs are digested.
QUICK: Final = 1
DIGESTED: Final = 2
_MOST_PROCESSES: Final = 8


@dataclass(frozen=True, slots=True)
class Section:
    """What is audited at once: an operator's kernels on a device.

    Attributes:
        device: ``host`` or ``cuda:N``.
        operator: The operator's name.
        skus: Only kernels of these; None: all of them.
        claims: Only claims whose name this pattern is found in.
    """

    device: str
    operator: str
    skus: frozenset[str] | None = None
    claims: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a claim.

    Attributes:
        claim: Its name.
        state: :data:`HELD`, :data:`REFUTED` or :data:`NOT_TESTABLE`.
        runs: How many runs held, where the claim does.
        note: What differs, or why it could not be tested.
    """

    claim: str
    state: str
    runs: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Audited:
    """A kernel on a device, with an outcome for each claim.

    Attributes:
        device: ``host`` or ``cuda:N``.
        operator: The operator's name.
        kernel: The kernel as the registry has it.
        digest: SHA-256 over what it wrote in a few cases; empty where a run failed.
        outcomes: Of the claims that were asked for, in the order of
            :data:`planq.audit.claims.CLAIMS`.
    """

    device: str
    operator: str
    kernel: planq.KernelInfo
    digest: str
    outcomes: tuple[Outcome, ...]


def place(device: str) -> Device:
    """Memory and a stream of a device, by its name."""
    if device == "host":
        return Host()
    from planq.audit.cuda import Cuda

    return Cuda(device)


def runs_on(kernel: planq.KernelInfo, device: str) -> bool:
    """Whether a kernel was built for a device."""
    if device == "host":
        return kernel.backend is planq.Backend.HOST
    (facts,) = (each for each in planq.devices() if f"cuda:{each.index}" == device)
    last = facts.arch if kernel.max_arch is None else kernel.max_arch
    return kernel.backend is planq.Backend.CUDA and kernel.min_arch <= facts.arch <= last


def sections(
    devices: Sequence[str],
    pattern: str = "",
    skus: frozenset[str] | None = None,
    claims: str = "",
) -> tuple[Section, ...]:
    """Every device's operators whose name has the pattern in it, in a fixed order."""
    wanted = re.compile(pattern)
    names = sorted(info.name for info in kernels.operators() if wanted.search(info.name))
    every = (Section(device, name, skus, claims) for device in devices for name in names)
    return tuple(section for section in every if skus is None or _kernels_of(section))


def audit_section(section: Section, most: Most) -> tuple[Audited, ...]:
    """Holds each of an operator's kernels to each claim; `most` cases of each, or all."""
    device = place(section.device)
    return tuple(
        _audited(device, section.operator, kernel, claims_of(section), most)
        for kernel in _kernels_of(section)
    )


def _kernels_of(section: Section) -> list[planq.KernelInfo]:
    (info,) = (each for each in planq.operators() if each.name == section.operator)
    found = [kernel for kernel in info.kernels if runs_on(kernel, section.device)]
    return [kernel for kernel in found if section.skus is None or kernel.sku in section.skus]


def claims_of(section: Section) -> list[Claim]:
    """The claims that a section holds its kernels to."""
    return [claim for claim in CLAIMS if re.search(section.claims, claim.name)]


def _audited(
    device: Device, operator: str, kernel: planq.KernelInfo, claims: Sequence[Claim], most: Most
) -> Audited:
    outcomes = tuple(hold(claim, device, operator, kernel, most) for claim in claims)
    try:
        wrote = digest_of_cases(device, operator, name_of(kernel), DIGESTED)
    except (AssertionError, planq.PlanqError):
        wrote = ""
    return Audited(device.name, operator, kernel, wrote, outcomes)


def hold(
    claim: Claim, device: Device, operator: str, kernel: planq.KernelInfo, most: Most
) -> Outcome:
    """Holds a kernel to a claim."""
    if reason := claim.excludes(kernel):
        return Outcome(claim.name, NOT_TESTABLE, note=reason)
    try:
        runs = claim.check(device, operator, kernel, most)
    except AssertionError as error:
        return Outcome(claim.name, REFUTED, note=str(error) or "a check failed")
    except planq.PlanqError as error:  # a kernel that refuses what it is recorded to take
        return Outcome(claim.name, REFUTED, note=f"{type(error).__name__}: {error}".splitlines()[0])
    if not runs:
        return Outcome(claim.name, NOT_TESTABLE, note="no case of this kernel has it")
    return Outcome(claim.name, HELD, runs)


def audit(
    wanted: Sequence[Section],
    most: Most,
    budget: float | None = None,
    told: Callable[[Section], None] = lambda _: None,
) -> Iterator[tuple[Section, tuple[Audited, ...] | None]]:
    """Audits sections, those of the host side by side; yields them in their order.

    Args:
        wanted: From :func:`sections`.
        most: How many cases of each claim; None: all.
        budget: Seconds, after which no section begins.
        told: Called with each section that is done, in any order.

    Yields:
        Each section, and what was found; None where the budget was used up.
    """
    deadline = None if budget is None else time.monotonic() + budget
    done: dict[Section, tuple[Audited, ...]] = {}
    suspects: list[Section] = []
    waiting = list(wanted)
    while waiting:
        for section, found in _side_by_side(waiting, most, deadline):
            if found is None:
                suspects.append(section)
            else:
                done[section] = found
                told(section)
    for section in suspects:
        done[section] = _alone(section, most)
        told(section)
    for section in wanted:
        yield section, done.get(section)


def _side_by_side(
    waiting: list[Section], most: Most, deadline: float | None
) -> Iterator[tuple[Section, tuple[Audited, ...] | None]]:
    """Audits and removes what waits, until the time is up; None: a process ended beside it."""
    processes = min(_MOST_PROCESSES, os.cpu_count() or 1)
    running: dict[Future[tuple[Audited, ...]], Section] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while waiting or running:
            if deadline is not None and time.monotonic() > deadline:
                waiting.clear()
            try:
                while waiting and len(running) < processes:
                    running[pool.submit(audit_section, waiting[0], most)] = waiting[0]
                    del waiting[0]
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    found = future.result()
                    yield running.pop(future), found
            except BrokenProcessPool:
                yield from ((section, None) for section in running.values())
                return


def _alone(section: Section, most: Most) -> tuple[Audited, ...]:
    """Audits a section whose process may end: then all of its claims are refuted."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(audit_section, section, most).result()
        except BrokenProcessPool:
            outcomes = tuple(
                Outcome(claim.name, REFUTED, note="a kernel of the operator ended the process")
                for claim in claims_of(section)
            )
            return tuple(
                Audited(section.device, section.operator, kernel, "", outcomes)
                for kernel in _kernels_of(section)
            )
