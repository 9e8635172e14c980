"""Measures planq beside the ceilings and the peers of the same run.

    python3 benchmarks/bench.py [--backend cuda|host] [--cases REGEX] [--quick] [--json PATH]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import planq
from harness.core.cases import Case, item_bytes, load_cases
from harness.core.check import check, host_reference, torch_reference
from harness.core.cuda import CudaMachine
from harness.core.host import HostMachine
from harness.core.product import share_of_peak
from harness.core.report import HEADING, Record, Report
from harness.core.timing import QUICK, Effort
from harness.core.workload import Machine, Timing, Workload
from harness.peers.peers import make_peer

CASES = Path(__file__).with_name("cases")
FAILURES_IN_A_ROW = 3
TURNS = 3  # of a product and its peer


def timing_details(timing: Timing) -> dict[str, Any]:
    """A timing as plain JSON values, in microseconds."""
    return {
        "us": round(timing.us, 3),
        "us_p10": round(timing.low * 1e6, 3),
        "us_p90": round(timing.high * 1e6, 3),
        "samples": timing.samples,
        "launches_per_sample": timing.launches,
        "method": timing.method,
    }


def measure_case(machine: Machine, case: Case) -> Record:
    """Times a case, checks what the timed launches wrote, and measures its ceilings."""
    record = Record(case)
    workload = Workload(machine, case)
    timing = workload.measure()
    references = [torch_reference]
    if not isinstance(machine, HostMachine):
        references.insert(0, host_reference)
    checked = check(case, workload.sets[-1], references, workload.launches[-1])
    record.details = {
        "sku": workload.plan.sku,
        "body": next(body.name for body in workload.plan.bodies() if body.chosen),
        "math": workload.plan.precision_guarantee().math.value,
        "workspace": workload.plan.workspace_size(),
        "bytes": case.traffic,
        "gbps": round(case.traffic / timing.seconds / 1e9, 1),
        **timing_details(timing),
        "operand_sets": len(workload.sets),
        "check": asdict(checked),
    }
    add_ceilings(machine, record, timing)
    if case.baseline is not None:
        add_baseline(machine, record, timing)
    return record


def add_ceilings(machine: Machine, record: Record, timing: Timing) -> None:
    """Adds what the same run allows at most for the case's traffic, and the targets' values."""
    case = record.case
    if case.product is not None:
        add_floor(machine, record, timing)
        return
    moved = case.traffic + (case.reads - 1) * case.input_bytes
    ceiling = machine.ceiling(case.reads * case.input_bytes, case.output_bytes, len(case.elements))
    record.details["ceiling"] = {"gbps": round(ceiling.gbps, 1), "what": ceiling.what}
    record.details["copy_gbps"] = round(machine.copy(moved).gbps, 1)
    kind = "ceiling" if case.reads == 1 else "floor"
    record.measures[kind] = moved / ceiling.bytes_per_second / timing.seconds
    if case.target_for("us"):
        record.measures["us"] = timing.us
    bare = machine.bare(case) if case.target_for("bare") else None
    if bare is not None:
        record.details["bare_us"] = round(bare.us, 3)
        record.measures["bare"] = timing.us / bare.us


def add_floor(machine: Machine, record: Record, timing: Timing) -> None:
    """Adds what bounds a product: its bytes at the ceiling, or its operations at the peak."""
    case, peak = record.case, machine.peak()
    assert case.product is not None
    record.details["problem"] = [case.product.m, case.product.n, case.product.k]
    record.details["tops"] = float(f"{case.product.operations / timing.seconds / 1e12:.5g}")
    if case.target_for("us"):
        record.measures["us"] = timing.us
    if peak is not None:
        peak *= share_of_peak(planq.MathPrecision(record.details["math"]))
        ceiling = machine.ceiling(case.input_bytes, case.output_bytes)
        floors = {
            "ceiling": case.traffic / ceiling.bytes_per_second,
            "peak": case.product.operations / peak,
        }
        kind = max(floors, key=lambda name: floors[name])
        record.details["ceiling"] = {"gbps": round(ceiling.gbps, 1), "what": ceiling.what}
        record.details["peak_tops"] = round(peak / 1e12, 1)
        record.details["floor_us"] = round(floors[kind] * 1e6, 3)
        record.measures[kind] = floors[kind] / timing.seconds


def add_baseline(machine: Machine, record: Record, timing: Timing) -> None:
    """Adds how the time compares with that of another operator on the same problem.

    Clocks depend on what ran before, so the case is timed once more behind the other.
    """
    case = record.case
    other = Workload(machine, replace(case, descriptor=case.baseline, outliers=None)).measure()
    again = Workload(machine, case).measure()
    record.details["baseline"] = {
        "operator": case.baseline.operator,
        "us": round(other.us, 3),
        "again_us": round(again.us, 3),
    }
    ours = (timing.us + again.us) / 2
    record.measures["over"] = ours / other.us
    x = case.first
    if case.target_for("extra_us"):  # beyond it and what reading and quantizing the input takes
        codes = math.prod(x.shape)
        moved = codes * (item_bytes(x.storage) + 1)
        rate = machine.copy(machine.large_bytes).bytes_per_second
        record.measures["extra_us"] = ours - other.us - moved / rate * 1e6


def compare_case(machine: Machine, record: Record, with_peers: bool) -> None:
    """Times a case a second time, and its peers beside it."""
    workload = Workload(machine, record.case)
    again = workload.measure()
    record.details["again_us"] = round(again.us, 3)
    record.details["peers"] = {}
    for name in record.case.peers if with_peers else ():
        try:
            found = measure_peer(machine, workload, name, again)
        except Exception as error:  # whatever a peer fails with says nothing of planq
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        if "speedup" in found:
            record.measures[name] = found["speedup"]
        record.details["peers"][name] = found
        answer = found.get("us", found.get("error", "not here"))
        text = f"{name} {answer}, planq {again.us:.2f} us"
        if "speedup" in found:
            text += f", {found['speedup']} times as fast"
        print(f"{record.case.name:<56} {text}", flush=True)


def measure_peer(machine: Machine, workload: Workload, name: str, ours: Timing) -> dict[str, Any]:
    """A peer's time beside planq's; empty where the machine lacks the peer.

    Products take turns: at full power the clocks depend on what ran before.
    """
    peer = make_peer(name, machine, workload)
    if peer is None:
        return {}
    traffic = workload.case.traffic + peer.extra_bytes
    pairs = [(ours, machine.measure(peer.launches, traffic, graphs=peer.capturable))]
    for _ in range(1, TURNS if workload.case.product else 1):
        again = workload.measure()
        pairs.append((again, machine.measure(peer.launches, traffic, graphs=peer.capturable)))
    timing = sorted((theirs for _, theirs in pairs), key=lambda one: one.us)[len(pairs) // 2]
    speedup = statistics.median(theirs.seconds / mine.seconds for mine, theirs in pairs)
    return {
        **timing_details(timing),
        "gbps": round(traffic / timing.seconds / 1e9, 1),
        "turns": len(pairs),
        "extra_bytes": peer.extra_bytes,
        "speedup": round(speedup, 3),
        "differing_codes": peer.differing,
        "prepared_s": round(peer.prepared, 2),
        **({"what": peer.what} if peer.what else {}),
    }


class Run:
    """The order of work: every case, then the comparisons, within the budget."""

    def __init__(self, machine: Machine, report: Report, budget: float) -> None:
        self.machine = machine
        self.report = report
        self.deadline = time.monotonic() + budget
        self.failures = 0

    def attempt(self, record: Record, kind: str, work: Callable[[], None]) -> None:
        """Does one piece of work, or lists it as not run."""
        if time.monotonic() > self.deadline or self.failures >= FAILURES_IN_A_ROW:
            self.report.not_run.append(f"{record.case.name} {kind}")
            return
        try:
            work()
            self.failures = 0
        except (planq.PlanqError, RuntimeError, MemoryError) as error:
            self.failures += 1
            record.error = f"{type(error).__name__}: {error}"
            self.report.add(record)

    def cases(self, cases: list[Case]) -> None:
        """Measures every case."""
        for case in cases:
            self.attempt(Record(case), "alone", partial(self._measure, case))

    def _measure(self, case: Case) -> None:
        self.report.add(measure_case(self.machine, case))

    def comparisons(self, with_peers: bool) -> None:
        """Compares the cases that name peers."""
        for record in [entry for entry in self.report.records.values() if entry.case.peers]:
            if record.error is None:
                work = partial(compare_case, self.machine, record, with_peers)
                self.attempt(record, "beside peers", work)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure planq beside ceilings and peers.")
    parser.add_argument("--backend", choices=("cuda", "host"), default="cuda")
    parser.add_argument(
        "--cases", default="", metavar="REGEX", help="only cases whose name matches"
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--no-peers", action="store_true", help="leave torch and the others out")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--threads", type=int, help="of the host backend; all by default")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="a .json file, or a folder for <gpu>/<id>.json"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    cases = [c for c in load_cases(CASES, arguments.backend) if re.search(arguments.cases, c.name)]
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    effort = QUICK if arguments.quick else Effort()
    machine: HostMachine | CudaMachine
    if arguments.backend == "host":
        machine = HostMachine(effort, arguments.threads)
    else:
        machine = CudaMachine(effort)
    machine.settle(0.5 if arguments.quick else 3.0)
    large = machine.copy(machine.large_bytes)
    report = Report({**machine.facts(), "large_copy_gbps": round(large.gbps, 1)})
    name = report.machine["name"]
    print(f"{name}: a copy of {machine.large_bytes / 1e9} GB, {large.gbps:.0f} GB/s")
    run = Run(machine, report, arguments.budget)
    print(HEADING)
    try:
        run.cases([case.on(name) for case in cases])
        run.comparisons(not arguments.no_peers)
    finally:
        if arguments.json and report.records:
            report.write(arguments.json)
    print(report.summary())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
