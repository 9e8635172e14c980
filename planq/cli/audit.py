"""``planq audit``: whether a GPU's tensor cores compute as the host's model of them does."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from planq.audit import Finding, Probe, probe
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError
from planq.cli.words import output_console
from planq.executors import DeviceError, Executor, open_device


def audit(
    device: Annotated[
        str, typer.Option(metavar="cuda:N", help="The GPU whose products are compared.")
    ] = "cuda:0",
    results: Annotated[
        int, typer.Option(min=1, help="At least as many for each kernel and pair of types.")
    ] = 10_000_000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Multiply numbers on a GPU and compare every bit with the model of its tensor cores.

    The exit status is 0 if nothing differs, 1 if something does, and 2 if there is no answer.
    """
    if device == "host":
        raise CommandError("--device: expected cuda:N, got 'host', which computes the model itself")
    found = probe(_open(device), results)
    if as_json:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        _show(found)
    return EXIT_OK if found.confirmed else EXIT_MARKED


def _open(device: str) -> Executor:
    """The GPU's executor; without a GPU, the error says what cannot be done."""
    try:
        return open_device(device)
    except DeviceError as error:
        raise CommandError(
            f"{error}; planq audit cannot compare the products of a GPU's tensor cores with the "
            "host's model of them where it cannot use that GPU"
        ) from error


def _as_dict(found: Probe) -> dict[str, Any]:
    return {
        "device": found.device,
        "build": found.build,
        "confirmed": found.confirmed,
        "findings": [_finding_as_dict(finding) for finding in found.findings],
    }


def _finding_as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "sku": finding.sku,
        "body": finding.body,
        "input_dtype": finding.input_dtype.value,
        "weight_dtype": finding.weight_dtype.value,
        "numbers": finding.numbers,
        "results": finding.results,
        "differing": finding.differing,
        "example": finding.example,
    }


def _show(found: Probe) -> None:
    console = output_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("sku", "body", "weight", "numbers", "results", "differing"):
        right = header in ("results", "differing")
        table.add_column(header, overflow="fold", justify="right" if right else "left")
    for finding in found.findings:
        counts = f"{finding.results:,}", f"{finding.differing:,}"
        table.add_row(
            finding.sku, finding.body, finding.weight_dtype.value, finding.numbers, *counts
        )
    console.print(table)
    verdict = "confirms" if found.confirmed else "does not confirm"
    console.print(f"{found.device} {verdict} the model of its tensor cores")
