"""The recorded digests of GPUs, beside the sources that they belong to: see
planq.audit.golden_files.

Kernels and cases that were written since wait in a list of their own, ``undigested.txt``: until a
GPU has digested them they are compared with their references alone, and ``make release-check``
fails.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from planq.audit.digests import FOLDER

ROOT = Path(__file__).parent.parent.parent
UNDIGESTED = ROOT / "tests" / "golden" / "undigested.txt"
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")


def source_id() -> str:
    """``planq.build_info().source_id`` of a build of these sources: docs/determinism.md has it."""
    paths = (path for path in (ROOT / "src").rglob("*") if path.suffix in SUFFIXES)
    names = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    digests = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in names}
    lines = (f"{name} {digests[name]}\n" for name in names if "src/bindings/" not in name)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def waiting() -> list[str]:
    """What no GPU has digested yet, a line each; those that begin with # say something else."""
    lines = UNDIGESTED.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def undigested() -> list[str]:
    """The names of CUDA kernels that wait."""
    return [line for line in waiting() if " " not in line]


def undigested_cases() -> list[tuple[str, str]]:
    """Operators whose kernels have digests, each with a word in the names of cases that wait."""
    pairs = (line.split() for line in waiting() if " " in line)
    return [(operator, word) for operator, word in pairs]


def operator_of(name: str) -> str:
    """The operator's name."""
    return name.partition("/")[0].partition(".")[0]


def unrecorded() -> str | None:
    """Why the digests are not those of the present kernels; None where they are."""
    if kernels := undigested():
        names = ", ".join(sorted({operator_of(name) for name in kernels}))
        return f"no GPU has digested {len(kernels)} kernels of {names}; record them"
    if cases := undigested_cases():
        names = ", ".join(sorted({operator for operator, _ in cases}))
        return f"no GPU has digested new cases of {names}; record them"
    sources, contents = source_id(), files()
    if any(content["source_id"] == sources for content in contents):
        return None
    known = " and ".join(f"{each['build_id']} on {each['device']}" for each in contents)
    return f"kernel sources changed since these builds were digested: {known}; record them again"


def files() -> list[dict[str, Any]]:
    """The content of every recorded file."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


def latest() -> dict[str, Any]:
    """That of the present kernels, where there is one; else the one with the most cases."""
    sources = source_id()

    def order(content: dict[str, Any]) -> tuple[bool, int]:
        cases = sum(len(entry["cases"]) for entry in content["operators"].values())
        return content["source_id"] == sources, cases

    return max(files(), key=order)
