"""``planq explain``: which kernel a descriptor gets, and why every other lost."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
import sys
from typing import Annotated

import typer

import planq
from planq.cli.described import STDIN, example_of, read_descriptor
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError
from planq.cli.preferred import (
    BACKEND,
    BATCH_INVARIANT,
    BODY,
    DETERMINISM,
    MAX_ULP,
    MAX_WORKSPACE,
    SKU,
    insisting,
)


def explain(
    descriptor: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|-]",
            help="A descriptor or a stored plan as JSON; - reads it from stdin.",
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(metavar="OPERATOR", help="Take a usual descriptor of this operator instead."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(metavar="host|sm_80|sm_90|cuda:N", help="For which device; needs no GPU."),
    ] = "host",
    determinism: Annotated[str | None, DETERMINISM] = None,
    batch_invariant: Annotated[bool, BATCH_INVARIANT] = False,
    max_ulp: Annotated[int | None, MAX_ULP] = None,
    max_workspace_bytes: Annotated[int | None, MAX_WORKSPACE] = None,
    backend: Annotated[planq.Backend | None, BACKEND] = None,
    sku: Annotated[str | None, SKU] = None,
    body: Annotated[str | None, BODY] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show which kernel a descriptor selects, and why each other one is not it.

    The exit status is 1 if no kernel qualifies, and 2 if there is no answer.
    """
    desc, stored = _given(descriptor, example)
    preference = insisting(
        stored, determinism, batch_invariant, max_ulp, max_workspace_bytes, backend, sku, body
    )
    if example is not None and not as_json:
        print(f"{desc.to_json()}\n")
    selection = planq.explain(desc, preference, device=device)
    print(json.dumps(selection.to_dict(), indent=2) if as_json else selection)
    return EXIT_MARKED if selection.chosen is None else EXIT_OK


def _given(
    source: str | None, example: str | None
) -> tuple[planq.Descriptor, planq.PlanPreference | None]:
    """Returns what to explain; reads from a terminal only if the source is ``-``."""
    if example is not None:
        if source is not None:
            raise CommandError("--example: expected no descriptor beside it")
        return example_of(example), None
    if source is None and sys.stdin is not None and sys.stdin.isatty():
        raise CommandError(
            "no descriptor: name a file, or - for the terminal, or see planq explain --example "
            "dynamic_range_quantize"
        )
    return read_descriptor(source or STDIN)
