"""``planq plan``: plans in files, made, checked and compared."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import planq
from planq.cli.described import read_descriptor, read_text
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError
from planq.executors import open_device

plan = typer.Typer(help="Store a plan, check whether it still holds, compare two of them.")

_DEVICE = typer.Option(metavar="host|cuda:N", help="The device that the plan is selected for.")


@plan.command()
def save(
    descriptor: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A descriptor or a stored plan, as JSON.")
    ],
    target: Annotated[Path, typer.Argument(metavar="PLAN.json", help="The file to make.")],
    device: Annotated[str, _DEVICE] = "host",
    force: Annotated[bool, typer.Option("--force", help="Replace PLAN.json if it exists.")] = False,
) -> None:
    """Select a plan for a descriptor, and store what was selected and what it promises."""
    desc, stored = read_descriptor(descriptor)
    made = planq.Plan.select(open_device(device).stream, desc, stored)
    text = json.dumps(made.to_dict(), indent=2) + "\n"
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise CommandError(f"{target}: exists; --force replaces it") from error
    print(f"{target}: {made.sku}, revision {made.revision}")


@plan.command()
def verify(
    plans: Annotated[list[str], typer.Argument(metavar="PLAN.json...", help="Stored plans.")],
    device: Annotated[str, _DEVICE] = "host",
) -> int:
    """Select again what each file stores: this build, on this device, has to promise the same.

    The exit status is 1 if any differs, and 2 if there is no answer.
    """
    stream = open_device(device).stream
    status = EXIT_OK
    for source in plans:
        try:
            found = planq.Plan.from_json(stream, json.dumps(_stored(source)))
            print(f"{source}: holds: {found.sku}")
        except planq.PlanMismatchError as error:
            status = EXIT_MARKED
            print(f"{source}: {error}")
    return status


@plan.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A.json", help="A stored plan.")],
    second: Annotated[str, typer.Argument(metavar="B.json", help="Another one.")],
) -> int:
    """Show in which fields two stored plans differ; the exit status is then 1."""
    found = _differences(_stored(first), _stored(second))
    for line in found:
        print(line)
    if not found:
        print("equal")
    return EXIT_MARKED if found else EXIT_OK


def _stored(source: str) -> dict[str, Any]:
    try:
        values = json.loads(read_text(source))
    except (ValueError, RecursionError):
        values = None
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
