"""The options that make a preference, for every command that selects."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

import planq
from planq._nearest import did_you_mean
from planq.cli.failure import CommandError

DETERMINISM = typer.Option(
    metavar="RUNG",
    help="The least determinism to accept: run_to_run, or the stored plan's, if left out.",
)
BATCH_INVARIANT = typer.Option("--batch-invariant", help="Only batch-invariant kernels.")
MAX_ULP = typer.Option(min=0, help="The largest distance from the host backend.")
MAX_WORKSPACE = typer.Option(min=0, help="The largest workspace to accept.")
BACKEND = typer.Option(help="Only this backend's kernels.")
SKU = typer.Option(help="Only kernels of this SKU.")
BODY = typer.Option(help="Only the kernel of this name among those of a SKU.")


def insisting(
    stored: planq.PlanPreference | None,
    determinism: str | None,
    batch_invariant: bool,
    max_ulp: int | None,
    max_workspace_bytes: int | None,
    backend: planq.Backend | None,
    sku: str | None,
    body: str | None,
) -> planq.PlanPreference:
    """Returns a stored preference, or the default one, overridden by the options that are given.

    Raises:
        CommandError: No level of determinism has the given name.
        planq.DescriptorError: An option has a value that is not allowed.
    """
    asked: dict[str, Any] = {
        "determinism": None if determinism is None else _rung(determinism),
        "batch_invariant": batch_invariant or None,
        "max_ulp": max_ulp,
        "max_workspace_bytes": max_workspace_bytes,
        "backend": backend,
        "sku": sku,
        "body": body,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    return dataclasses.replace(stored or planq.PlanPreference(), **given)


def _rung(name: str) -> planq.Determinism:
    try:
        return planq.Determinism[name.upper().replace("-", "_")]
    except KeyError as error:
        names = [rung.name.lower() for rung in planq.Determinism]
        rungs, hint = ", ".join(names), did_you_mean(name, names)
        raise CommandError(f"--determinism: expected one of {rungs}, got {name!r}{hint}") from error
