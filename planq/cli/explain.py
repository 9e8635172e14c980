"""``planq explain``: which kernel a descriptor gets, and why every other lost."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import planq
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError


def explain(
    descriptor: Annotated[
        str,
        typer.Argument(metavar="[FILE|-]", help="The descriptor as JSON; - reads it from stdin."),
    ] = "-",
    device: Annotated[
        str,
        typer.Option(metavar="host|sm_80|sm_90|cuda:N", help="For which device; needs no GPU."),
    ] = "host",
    determinism: Annotated[
        str, typer.Option(metavar="RUNG", help="The least determinism to accept.")
    ] = planq.Determinism.RUN_TO_RUN.name.lower(),
    batch_invariant: Annotated[
        bool, typer.Option("--batch-invariant", help="Only batch-invariant kernels.")
    ] = False,
    max_ulp: Annotated[
        int | None, typer.Option(min=0, help="The largest distance from the host backend.")
    ] = None,
    max_workspace_bytes: Annotated[
        int | None, typer.Option(min=0, help="The largest workspace to accept.")
    ] = None,
    backend: Annotated[
        planq.Backend | None, typer.Option(help="Only this backend's kernels.")
    ] = None,
    sku: Annotated[str | None, typer.Option(help="Only this kernel.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show which kernel a descriptor selects, and why each other one is not it.

    The exit status is 1 if no kernel qualifies, and 2 if there is no answer.
    """
    preference = planq.PlanPreference(
        determinism=_rung(determinism),
        batch_invariant=batch_invariant,
        max_ulp=max_ulp,
        max_workspace_bytes=max_workspace_bytes,
        backend=backend,
        sku=sku,
    )
    desc = planq.Descriptor.from_json(_read(descriptor))
    selection = planq.explain(desc, preference, device=device)
    print(json.dumps(selection.to_dict(), indent=2) if as_json else selection)
    return EXIT_MARKED if selection.chosen is None else EXIT_OK


def _rung(name: str) -> planq.Determinism:
    try:
        return planq.Determinism[name.upper().replace("-", "_")]
    except KeyError as error:
        rungs = ", ".join(rung.name.lower() for rung in planq.Determinism)
        raise CommandError(f"--determinism: expected one of {rungs}, got {name!r}") from error


def _read(source: str) -> str:
    if source == "-" and sys.stdin is None:  # as Python starts where it is closed
        raise CommandError("stdin is closed")
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{source}: not UTF-8 text") from error
