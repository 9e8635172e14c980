"""``planq plan``: plans in files, made, checked and compared."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import planq
from planq.checkpoint.strict_json import parse
from planq.cli.described import read_descriptor, read_text
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
from planq.cli.signed import read_bytes, sign_text, signer_of
from planq.executors import open_device
from planq.plan import foresee, verify_foreseen

plan = typer.Typer(help="Store a plan, check whether it still holds, compare two of them.")

_DEVICE = typer.Option(
    metavar="host|sm_80|sm_90|cuda:N",
    help="The device that the plan is selected for; sm_90 need not be here.",
)


@plan.command()
def save(
    descriptor: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A descriptor or a stored plan, as JSON.")
    ],
    target: Annotated[Path, typer.Argument(metavar="PLAN.json", help="The file to make.")],
    device: Annotated[str, _DEVICE] = "host",
    determinism: Annotated[str | None, DETERMINISM] = None,
    batch_invariant: Annotated[bool, BATCH_INVARIANT] = False,
    max_ulp: Annotated[int | None, MAX_ULP] = None,
    max_workspace_bytes: Annotated[int | None, MAX_WORKSPACE] = None,
    backend: Annotated[planq.Backend | None, BACKEND] = None,
    sku: Annotated[str | None, SKU] = None,
    body: Annotated[str | None, BODY] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace PLAN.json if it exists.")] = False,
) -> None:
    """Select a plan for a descriptor, and store what was selected and what it promises."""
    desc, stored = read_descriptor(descriptor)
    preference = insisting(
        stored, determinism, batch_invariant, max_ulp, max_workspace_bytes, backend, sku, body
    )
    if _is_absent(device):
        made = foresee(desc, preference, device)
    else:
        made = planq.Plan.select(open_device(device).stream, desc, preference).to_dict()
    text = json.dumps(made, indent=2) + "\n"
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise CommandError(f"{target}: exists; --force replaces it") from error
    print(f"{target}: {made['sku']}, revision {made['revision']}")


@plan.command()
def verify(
    plans: Annotated[list[str], typer.Argument(metavar="PLAN.json...", help="Stored plans.")],
    device: Annotated[str, _DEVICE] = "host",
    signed_by: Annotated[
        Path | None,
        typer.Option(metavar="PUBLIC.pem", help="The owner of this key has to have signed it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Select again what each file stores: this build, on this device, has to promise the same.

    With --signed-by, a file that the key's owner has not signed does not hold. The exit status is
    1 if any does not, and 2 if there is no answer.
    """
    select = _selector(device)
    verdicts = [_verdict(source, select, signed_by) for source in plans]
    if as_json:
        print(json.dumps({"device": device, "plans": verdicts}, indent=2))
    else:
        for each in verdicts:
            said = f"holds: {each['now']}" if each["holds"] else each["reason"]
            print(f"{each['file']}: {said}")
    return EXIT_OK if all(each["holds"] for each in verdicts) else EXIT_MARKED


def _is_absent(device: str) -> bool:
    """Whether a name stands for an architecture: selection works without such a device."""
    return device.startswith("sm_")


def _selector(device: str) -> Callable[[str], str]:
    """Returns a function that selects a stored plan again and returns the SKU."""
    if _is_absent(device):
        return lambda text: str(verify_foreseen(text, device)["sku"])
    stream = open_device(device).stream
    return lambda text: planq.Plan.from_json(stream, text).sku


def _verdict(source: str, select: Callable[[str], str], signed_by: Path | None) -> dict[str, Any]:
    """Whether one stored plan still holds, as plain JSON values."""
    text = _text(source)
    stored = _stored(source, text)
    found: dict[str, Any] = {"file": source, "holds": True, "stored": stored["sku"]}
    if signed_by is not None and signer_of(signed_by, Path(source), text) is None:
        reason = f"not signed by the owner of {signed_by}"
        return {**found, "holds": False, "now": None, "reason": reason, "differences": []}
    try:
        return {**found, "now": select(json.dumps(stored)), "reason": None, "differences": []}
    except planq.PlanMismatchError as error:
        changed = [
            {"field": field, "stored": was, "now": now}
            for field, (was, now) in error.differences.items()
        ]
        now = error.differences.get("sku", (None, None))[1]
        if changed and now is None:  # the same SKU; something else differs
            now = stored["sku"]
        return {**found, "holds": False, "now": now, "reason": str(error), "differences": changed}


@plan.command()
def sign(
    key: Annotated[Path, typer.Argument(metavar="KEY.pem", help="A private ed25519 key.")],
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN.json...", help="Stored plans.")],
) -> None:
    """Sign what stored plans say, each in a file PLAN.json.sig beside it."""
    for file in plans:
        text = read_bytes(file)
        _stored(str(file), text)
        print(sign_text(key, file, text))


@plan.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A.json", help="A stored plan.")],
    second: Annotated[str, typer.Argument(metavar="B.json", help="Another one.")],
) -> int:
    """Show in which fields two stored plans differ; the exit status is then 1."""
    found = _differences(_stored(first, _text(first)), _stored(second, _text(second)))
    for line in found:
        print(line)
    if not found:
        print("equal")
    return EXIT_MARKED if found else EXIT_OK


def _text(source: str) -> bytes:
    return read_text(source).encode("utf-8", "surrogateescape")


def _stored(source: str, text: bytes) -> dict[str, Any]:
    """The plan in a file's text; an error says what it is instead."""
    try:
        values = parse(text.decode("utf-8"))
    except ValueError as error:
        raise CommandError(f"{source}: not a stored plan: {error}") from error
    if not isinstance(values, dict) or not {"descriptor", "preference", "sku"} <= values.keys():
        raise CommandError(f"{source}: not a stored plan")
    return values


def _differences(first: Any, second: Any, where: str = "") -> list[str]:
    """Names every value that differs, by the path to it."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = sorted(first.keys() | second.keys())
        return [
            line
            for name in names
            for line in _differences(
                first.get(name), second.get(name), f"{where}.{name}".lstrip(".")
            )
        ]
    if first == second:
        return []
    return [f"{where}: {json.dumps(first)} -> {json.dumps(second)}"]
