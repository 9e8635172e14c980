"""``planq info``: what this build is, and what it can run on here."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

import planq
from planq.cli.words import output_console, size_words
from planq.machine import (
    driver_cuda_version,
    driver_version,
    instruction_sets,
    library_sha256,
    operating_system,
    processor,
)


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the build, the machine, the backends and the devices."""
    if as_json:
        print(json.dumps(_as_dict(), indent=2))
        return
    console = output_console()
    build = planq.build_info()
    facts = Table(box=None, show_header=False, pad_edge=False)
    for field in dataclasses.fields(build):
        facts.add_row(field.name, _words(getattr(build, field.name)))
    for name, value in {"library_sha256": library_sha256(), **_machine()}.items():
        facts.add_row(name, escape(_words(value)))
    for backend, state in _backends().items():
        facts.add_row(f"backend {backend}", state)
    console.print(facts)
    devices = planq.devices()
    if devices:
        console.print(_device_table(devices))


def _as_dict() -> dict[str, Any]:
    return {
        "build": dataclasses.asdict(planq.build_info()),
        "library_sha256": library_sha256(),
        "machine": _machine(),
        "backends": _backends(),
        "devices": [dataclasses.asdict(device) for device in planq.devices()],
    }


def _machine() -> dict[str, str]:
    return {
        "processor": processor(),
        "instruction_sets": instruction_sets(),
        "os": operating_system(),
        "driver": driver_version(),
        "driver_cuda": driver_cuda_version(),
    }


def _backends() -> dict[str, str]:
    if not planq.build_info().cuda:
        cuda = "not built"
    else:
        cuda = "ready" if planq.devices() else "built, but no driver or no device here"
    return {planq.Backend.HOST.value: "ready", planq.Backend.CUDA.value: cuda}


def _device_table(devices: tuple[planq.DeviceFacts, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("device", "name", "architecture", "multiprocessors", "shared memory", "L2"):
        table.add_column(header)
    for device in devices:
        table.add_row(
            f"cuda:{device.index}",
            device.name,
            f"sm_{device.arch}",
            str(device.multiprocessors),
            size_words(device.shared_memory_per_block),
            size_words(device.l2_bytes),
        )
    return table


def _words(value: object) -> str:
    if isinstance(value, tuple | list):
        return " ".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, "") else str(value)
