"""What was measured, as a table for people and as JSON for the record."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import planq
from harness.core.cases import Case

HEADING = (
    f"{'case':<56} {'us':>9} {'GB/s':>6} {'ceiling':>7} {'copy':>6} {'ratio':>6}  targets\n"
    "GB/s: every operand once. ceiling, copy: measured in this run. ratio: to the\n"
    "ceiling; (floor) where the input has to be read again: to the time of that traffic.\n"
    "Products: (peak) where operations bound them: to the peak of the data sheet."
)
RATIOS = ("ceiling", "floor", "peak")


def command(arguments: list[str]) -> list[str]:
    """The arguments without the folder that results went to, which says nothing elsewhere."""
    hidden = {i + 1 for i, argument in enumerate(arguments) if argument == "--json"}
    return [argument for i, argument in enumerate(arguments) if i not in hidden]


def folder_of(machine: str) -> str:
    """Where records of a machine belong: ``h100`` for ``NVIDIA H100 80GB HBM3``."""
    words = machine.lower().split()
    return "-".join(word for word in words if not re.fullmatch(r"nvidia|\d+gb|hbm\w*", word))


def begun(words: list[str], machine: dict[str, Any], **versions: str) -> dict[str, Any]:
    """What every record begins with.

    Args:
        words: The arguments of the program.
        machine: Its facts.
        versions: Of peers, by their names.
    """
    return {
        "format": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(words),
        "machine": machine,
        "software": software() | versions,
    }


def keep(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Writes a record into the folder of its machine."""
    file = folder / folder_of(record["machine"]["name"]) / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")


@dataclass(slots=True)
class Record:
    """Everything that one case gave.

    Attributes:
        measures: The values that targets speak of.
        details: The rest, as plain JSON values.
    """

    case: Case
    measures: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """Each target that speaks of a measured value, and whether it is met."""
        found = []
        for measure, value in self.measures.items():
            target = self.case.target_for(measure)
            if target is not None:
                entry = {"measure": measure, "bound": target.bound, "value": round(value, 4)}
                found.append({**entry, "met": target.holds(value)})
        return found

    @property
    def wrong(self) -> bool:
        """Whether the case failed or its bits differ from the reference."""
        return self.error is not None or self.details.get("check", {}).get("differing", 0) > 0

    def line(self) -> str:
        """The row of the table."""
        if self.error is not None:
            return f"{self.case.name:<56} ERROR {self.error.splitlines()[0][:120]}"
        d = self.details
        kind = next((kind for kind in RATIOS if kind in self.measures), "")
        ratio = f"{self.measures[kind]:.3f}" if kind else ""
        ceiling = f"{d['ceiling']['gbps']:.0f}" if "ceiling" in d else ""
        copy = f"{d['copy_gbps']:.0f}" if "copy_gbps" in d else ""
        cells = f"{d['us']:>9.2f} {d['gbps']:>6.0f} {ceiling:>7} {copy:>6} {ratio:>6}"
        kind = f" ({kind})" if kind not in ("", "ceiling") else ""
        targets = " ".join(_verdict_text(verdict) for verdict in self.verdicts)
        wrong = " WRONG BITS" if self.wrong else ""
        text = f"{self.case.name:<56} {cells}{kind}{_rates_text(d)}{wrong}  {targets}"
        return text.rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {
            "name": self.case.name,
            "error": self.error,
            **self.details,
            "measures": self.measures,
            "targets": self.verdicts,
        }


def _rates_text(details: dict[str, Any]) -> str:
    """What is told of products in addition."""
    if "tops" not in details:
        return ""
    floor = f", floor {details['floor_us']:.1f} us" if "floor_us" in details else ""
    return f" {details['tops']:.4g} TOPS{floor}"


def _verdict_text(verdict: dict[str, Any]) -> str:
    met = "ok" if verdict["met"] else "MISSED"
    return f"[{verdict['measure']} {verdict['value']:.3f} {verdict['bound']} {met}]"


class Report:
    """The records of a run."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.records: dict[str, Record] = {}
        self.not_run: list[str] = []
        self.machine = facts
        self.began = datetime.datetime.now(datetime.UTC)

    def add(self, record: Record) -> None:
        """Takes a record in and prints its line."""
        self.records[record.case.name] = record
        print(record.line(), flush=True)

    @property
    def wrong(self) -> list[Record]:
        """The records whose bits cannot be trusted."""
        return [record for record in self.records.values() if record.wrong]

    def noise(self) -> dict[str, Any]:
        """How far the second measurement of a case is from its first."""
        pairs = {
            name: record.details["again_us"] / record.details["us"] - 1
            for name, record in self.records.items()
            if "again_us" in record.details
        }
        worst = max((abs(change) for change in pairs.values()), default=None)
        return {"largest": worst, "cases": pairs}

    def summary(self) -> str:
        """Verdicts by kind and types, what was missed, peers and noise."""
        parts = [_verdict_table(self.records.values()), *_missed(self.records.values())]
        parts += _peer_lines(self.records.values())
        noise = self.noise()
        if noise["cases"]:
            parts.append(f"same case twice: at most {noise['largest']:.1%} apart")
        if self.not_run:
            some = ", ".join(self.not_run[:3])
            parts.append(f"not run: {len(self.not_run)}, {some} ...")
        return "\n".join(parts)

    def write(self, path: Path) -> None:
        """Writes one JSON file, or into a folder one for each id."""
        by_id = defaultdict(list)
        for record in self.records.values():
            by_id[record.case.id].append(record.to_dict())
        if path.suffix == ".json":
            self._write(path, [entry for entries in by_id.values() for entry in entries])
            return
        folder = path / folder_of(self.machine["name"])
        for name, entries in by_id.items():
            self._write(folder / f"{name}.json", entries)

    def _write(self, path: Path, entries: list[dict[str, Any]]) -> None:
        names = {entry["name"] for entry in entries}
        noise = {key: value for key, value in self.noise()["cases"].items() if key in names}
        content = {
            "format": 1,
            "date": self.began.isoformat(timespec="seconds"),
            "command": command(sys.argv[1:]),
            "machine": self.machine,
            "software": software(),
            "noise": noise,
            "not_run": self.not_run,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        cases = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        path.write_text(f'{json.dumps(content, indent=1)[:-2]},\n "cases": [\n{cases}\n ]\n}}\n')


def _verdict_table(records: Iterable[Record]) -> str:
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    worst: dict[tuple[str, str], float] = {}
    for record in records:
        kind = record.case.name.rpartition("/")[0]
        rows[(kind, "")]["wrong"] += record.wrong
        for verdict in record.verdicts:
            key = (kind, f"{verdict['measure']} {verdict['bound']}")
            rows[key]["met" if verdict["met"] else "missed"] += 1
            pick = min if verdict["bound"].startswith(">") else max
            worst[key] = pick(worst.get(key, verdict["value"]), verdict["value"])
    lines = [f"{'cases':<44} {'target':<24} {'met':>4} {'missed':>6} {'worst':>7}"]
    for key in sorted(worst):
        count = rows[key]
        lines.append(
            f"{key[0]:<44} {key[1]:<24} {count['met']:>4} {count['missed']:>6} {worst[key]:>7.3f}"
        )
    wrong = sum(count["wrong"] for count in rows.values())
    lines.append(f"cases that failed or had wrong bits: {wrong}")
    return "\n".join(lines)


def _missed(records: Iterable[Record]) -> list[str]:
    lines = [
        f"missed: {record.case.name} {_verdict_text(verdict)}"
        for record in records
        for verdict in record.verdicts
        if not verdict["met"]
    ]
    return [*lines[:40], f"... and {len(lines) - 40} more"] if len(lines) > 40 else lines


def _peer_lines(records: Iterable[Record]) -> list[str]:
    speedups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        kind = record.case.name.rpartition("/")[0]
        for name, peer in record.details.get("peers", {}).items():
            if "speedup" in peer:
                speedups[(kind, name)].append(peer["speedup"])
    return [
        f"{kind}: {len(values)} shapes against {name}: {min(values):.2f} to {max(values):.2f} "
        f"times as fast, geometric mean {math.exp(sum(map(math.log, values)) / len(values)):.2f}"
        for (kind, name), values in sorted(speedups.items())
    ]


def software() -> dict[str, str]:
    """Versions of everything that takes part."""
    build = planq.build_info()
    versions = {
        "python": platform.python_version(),
        "planq": f"{build.version} ({build.build_id})",
        "planq_source": build.source_id,
        "planq_compiler": build.compiler,
        "planq_cuda": f"{build.cuda_version} for {build.architectures}" if build.cuda else "none",
        "torch": str(torch.__version__),
    }
    for package in ("numpy", "triton", "bitsandbytes", "torchao"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    return versions
