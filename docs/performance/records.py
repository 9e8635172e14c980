"""The recorded runs of the benchmarks, and the newest figures of every case on each machine."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

# What a target speaks of beside peers.
OWN = ("ceiling", "floor", "peak", "bare", "us", "over", "extra_us")
# What a case's time is compared with, of these the first that it has; some have none.
FRACTIONS = ("ceiling", "floor", "peak")
# The machine's name in records of the host backend, whatever the processor.
HOST = "host"


@dataclass(frozen=True)
class Run:
    """One run of a benchmark: what was measured together, by one build on one machine."""

    letter: str
    facts: dict[str, Any]
    files: tuple[Path, ...]

    @property
    def date(self) -> str:
        """When it began, in minutes."""
        return str(self.facts["date"])[:16].replace("T", " ")

    @property
    def build(self) -> str:
        """The identity of the build, without the version."""
        found = re.search(r"\((.*)\)", self.facts["software"]["planq"])
        return found[1] if found else str(self.facts["software"]["planq"])

    @property
    def machine(self) -> str:
        """The GPU, or the processor."""
        machine = self.facts.get("machine")
        if machine is None:  # of overhead.py
            gpu = self.facts["gpu"]
            return f"{self.facts['processor']}, {gpu}" if gpu else str(self.facts["processor"])
        if machine["name"] != HOST:
            return f"{machine['name']}, driver {machine['driver_version']}"
        threads = machine["threads"]
        return f"{machine['processor']}, {threads} thread{'s' if threads != 1 else ''}"

    @property
    def device(self) -> str:
        """The GPU's name, or that of the host backend; empty for overhead.py."""
        return str(self.facts.get("machine", {}).get("name", ""))

    @property
    def folder(self) -> str:
        """The folder of its records."""
        return self.files[0].parent.name

    @property
    def peers(self) -> str:
        """The releases of what planq is compared with."""
        software = self.facts["software"]
        known = ("torch", "bitsandbytes", "torchao")
        names = [name for name in known if software.get(name, "none") != "none"]
        return ", ".join(f"{name} {software[name]}" for name in names)

    @property
    def noise(self) -> float | None:
        """How far apart two measurements of one case were at most."""
        noise = self.facts.get("noise", {})
        changes = noise.get("cases", noise)
        return max((abs(change) for change in changes.values()), default=None)


@dataclass(frozen=True)
class Miss:
    """A target that was not met."""

    case: Case
    measure: str
    wanted: str
    value: float
    run: Run


@dataclass(frozen=True)
class Case:
    """The newest figures of one case; those beside peers may come from an earlier run.

    Attributes:
        entry: What was measured of it.
        beside: The same from the newest run that measured a peer too.
    """

    entry: dict[str, Any]
    run: Run
    beside: dict[str, Any] | None
    beside_run: Run | None

    @property
    def name(self) -> str:
        """As the benchmark's ``--cases`` takes it."""
        return str(self.entry["name"])

    @property
    def id(self) -> str:
        """What is measured together, such as A1."""
        return self.name.partition("/")[0]

    @property
    def kind(self) -> str:
        """The name without the shape."""
        return self.name.rpartition("/")[0]

    @property
    def shape(self) -> str:
        """The shape, with a sign between extents."""
        return self.name.rpartition("/")[2].replace("x", " × ")

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as numbers; empty where it says more than extents."""
        text = self.name.rpartition("/")[2]
        return tuple(map(int, text.split("x"))) if re.fullmatch(r"[\dx]+", text) else ()

    @property
    def operator(self) -> str:
        """The operator, which begins the SKU."""
        return re.split("[./]", self.entry["sku"])[0]

    @property
    def group(self) -> str:
        """What the parameters belong to, or the codebook: the name after the id and operator."""
        parts = [part for part in self.name.split("/")[1:-1] if part != self.operator]
        return re.sub(r"-?\d[\dx]*$", "", parts[0]) if len(parts) > 1 else parts[0]

    @property
    def fraction(self) -> float | None:
        """Of the ceiling, of all reads where a large input is read again, or of a product's peak.

        None where the machine's peak is not known.
        """
        measures = self.entry["measures"]
        return next((float(measures[kind]) for kind in FRACTIONS if kind in measures), None)

    @property
    def rereads(self) -> bool:
        """Whether its fraction counts several reads of the input."""
        return "floor" in self.entry["measures"]

    @property
    def problem(self) -> tuple[int, ...]:
        """Of a product m, n and k, else nothing."""
        return tuple(self.entry.get("problem", ()))

    @property
    def tops(self) -> float:
        """10^12 operations a second, of a product."""
        return float(self.entry["tops"])

    @property
    def intensity(self) -> float:
        """Operations for each byte, of a product."""
        return 2.0 * math.prod(self.problem) / float(self.entry["bytes"])

    @property
    def megabytes(self) -> float:
        """What it has to move."""
        return float(self.entry["bytes"]) / 1e6

    @cached_property
    def speedups(self) -> dict[str, float]:
        """How many times as fast as each peer it is."""
        peers = (self.beside or {}).get("peers") or {}
        return {name: peer["speedup"] for name, peer in peers.items() if "speedup" in peer}

    @property
    def verdicts(self) -> Iterable[tuple[dict[str, Any], Run]]:
        """Every target with its run; those about peers from the run that had these."""
        for target in self.entry["targets"]:
            if target["measure"] in OWN:
                yield target, self.run
        if self.beside is not None and self.beside_run is not None:
            for target in self.beside["targets"]:
                if target["measure"] not in OWN:
                    yield target, self.beside_run

    @property
    def misses(self) -> Iterable[Miss]:
        """The targets that are not met."""
        for target, run in self.verdicts:
            if not target["met"]:
                yield Miss(self, target["measure"], target["bound"], target["value"], run)

    @property
    def wrong(self) -> bool:
        """Whether what the timed launches wrote differs from the reference."""
        return bool(self.entry["check"]["differing"])


@dataclass(frozen=True)
class Results:
    """Everything that was recorded on GPUs of one name, or on the host backend.

    Attributes:
        device: The GPU's name; that of the host backend is ``HOST``.
        runs: The newest first.
        cases: In the order of their names.
        failed: Names of cases whose newest measurement ended with an error.
    """

    device: str
    runs: tuple[Run, ...]
    cases: tuple[Case, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Records:
    """Everything that folders of results hold.

    Attributes:
        gpus: Those with the most cases first.
        overheads: Runs of overhead.py.
        collectives: Runs of collectives.py.
        llama: Runs of llama.py.
        encoder: Runs of encoder.py.
        llm: Runs of llm.py.
    """

    gpus: tuple[Results, ...]
    host: Results
    overheads: tuple[Run, ...]
    collectives: tuple[Run, ...]
    llama: tuple[Run, ...]
    encoder: tuple[Run, ...]
    llm: tuple[Run, ...]


def load(folders: Iterable[Path]) -> Records:
    """Reads folders of records.

    Args:
        folders: Each with JSON files as bench.py, overhead.py, collectives.py, llama.py,
            encoder.py and llm.py write them; others are passed by.

    Returns:
        The runs, newest first, with letters each, and the newest figures of every case on every
        GPU and on the host.
    """
    contents = {path: json.loads(path.read_text()) for folder in folders for path in _files(folder)}
    benches = {path: content for path, content in contents.items() if "cases" in content}
    runs = _runs(benches, string.ascii_lowercase)
    others = [
        _runs({p: c for p, c in contents.items() if key in c}, string.ascii_uppercase)
        for key in ("figures", "collectives", "llama", "encoder", "llm")
    ]
    names = {run.device for run in runs} - {HOST}
    gpus = [_results(name, runs, benches) for name in names]
    gpus.sort(key=lambda found: (-len(found.cases), found.device))
    return Records(tuple(gpus), _results(HOST, runs, benches), *others)


def _results(device: str, every: Iterable[Run], benches: dict[Path, dict[str, Any]]) -> Results:
    """The newest figures of every case on one device."""
    runs = tuple(run for run in every if run.device == device)
    alone: dict[str, tuple[dict[str, Any], Run]] = {}
    beside: dict[str, tuple[dict[str, Any], Run]] = {}
    for run in reversed(runs):
        for path in run.files:
            for entry in benches[path]["cases"]:
                alone[entry["name"]] = (entry, run)
                if any("speedup" in peer for peer in (entry.get("peers") or {}).values()):
                    beside[entry["name"]] = (entry, run)
    failed = tuple(sorted(name for name, (entry, _) in alone.items() if entry["error"]))
    cases = tuple(
        Case(*alone[name], *beside.get(name, (None, None)))
        for name in sorted(alone, key=_order)
        if name not in failed
    )
    return Results(device, runs, cases, failed)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _runs(contents: dict[Path, dict[str, Any]], letters: str) -> tuple[Run, ...]:
    found: dict[tuple[str, str, str], list[Path]] = {}
    for path, content in contents.items():
        device = content.get("machine", {}).get("name", "")
        key = content["date"], content["software"]["planq"], device
        found.setdefault(key, []).append(path)
    names = [*letters, *map("".join, product(letters, repeat=2))]
    if len(found) > len(names):
        raise SystemExit(f"{len(found)} runs, and letters for {len(names)}: remove old records")
    return tuple(
        Run(name, contents[files[0]], tuple(files))
        for name, (_, files) in zip(names, sorted(found.items(), reverse=True), strict=False)
    )


def _order(name: str) -> list[tuple[int, str]]:
    """Numbers in a name by their size."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
