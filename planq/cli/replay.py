"""``planq replay``: whether sampled runs have the same bits when they are computed again."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import planq
from planq import recording
from planq.cli.failure import EXIT_FAILED, EXIT_MARKED, EXIT_OK
from planq.cli.words import output_console, printable, say
from planq.executors import open_device
from planq.recording.records import Records, read
from planq.recording.replay import Compared, State, compare


def replay(
    folder: Annotated[Path, typer.Argument(help="What PLANQ_RECORD named.", metavar="FOLDER")],
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the runs are computed again.")
    ] = "host",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Compute recorded runs again, and name the first whose bits differ.

    The exit status is 0 if all bits are equal, 1 if some differ, and 2 if there is no answer: a
    record is damaged, there is none, or some runs are not comparable on this device.
    """
    recording.stop()  # what runs here is no sample
    executor = open_device(device)
    records = read(folder)
    compared = []
    with _progress(len(records.runs)) as advance:
        for run in records.runs:
            compared.append(compare(records, run, executor))
            advance()
    if as_json:
        print(json.dumps(_as_dict(records, compared, executor.name), indent=2))
    else:
        _show(records, compared, executor.name)
    return _status(compared)


def _status(compared: list[Compared]) -> int:
    states = {each.state for each in compared}
    if State.DIFFERS in states:
        return EXIT_MARKED
    if State.NOT_COMPARABLE not in states:
        return EXIT_OK
    lost = [each for each in compared if each.state is State.NOT_COMPARABLE]
    say("error", f"{len(lost)} of {len(compared)} runs are not comparable: {lost[0].reason}")
    return EXIT_FAILED


def _as_dict(records: Records, compared: list[Compared], device: str) -> dict[str, Any]:
    build = planq.build_info()
    return {
        "format": 1,
        "version": build.version,
        "build_id": build.build_id,
        "device": device,
        "samples": records.counts,
        **_totals(compared),
        "first_difference": next(
            (_run_dict(each) for each in compared if each.state is State.DIFFERS), None
        ),
        "runs": [_run_dict(each) for each in compared],
    }


def _totals(compared: list[Compared]) -> dict[str, int]:
    totals = Counter(each.state for each in compared)
    return {state.value: totals[state] for state in State}


def _run_dict(each: Compared) -> dict[str, Any]:
    run = each.run
    return {
        "record": f"{run.path.parent.name}/{run.path.name}",
        "run": run.number,
        "time": run.time,
        "operator": run.descriptor.operator,
        "recorded_sku": run.sku,
        "recorded_device": run.device,
        "recorded_build_id": run.build_id,
        "sku": each.sku,
        "state": each.state.value,
        "reason": each.reason,
        "differences": [dataclasses.asdict(difference) for difference in each.differences],
    }


def _show(records: Records, compared: list[Compared], device: str) -> None:
    """Prints the first run that differs, why others are not comparable, and the counts."""
    console = output_console()

    def tell(line: str) -> None:
        console.print(escape(printable(line)))

    first = next((each for each in compared if each.state is State.DIFFERS), None)
    if first is not None:
        run = first.run
        record = f"{run.path.parent.name}/{run.path.name}"
        tell(f"{record}: run {run.number} of {run.sku} on {run.device}, {run.time}")
        for difference in first.differences:
            tell(f"  {difference.operand}: recorded SHA-256 {difference.recorded}")
            tell(f"  {difference.operand}: SHA-256 here     {difference.found}, by {first.sku}")
    reasons = Counter((each.run.sku, each.reason) for each in compared if each.reason)
    for (sku, reason), count in reasons.items():
        tell(f"{sku}, {count} runs are not comparable: {reason}")
    totals = _totals(compared)
    words = ", ".join(f"{totals[state.value]:,} {state.value.replace('_', ' ')}" for state in State)
    tell(f"{len(compared):,} runs on {device}: {words}")
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in records.counts.items())
    tell(f"samples: {counts}")


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Shows progress on stderr if that is a terminal; yields what to call after each run."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda: bar.update(task, advance=1)
