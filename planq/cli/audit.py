"""``planq audit``: whether every kernel of this build keeps on this machine what it promises."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import dataclasses
import datetime
import importlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import planq
from planq.audit import Probe, probe
from planq.checkpoint.strict_json import parse
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError, describe_os_error
from planq.cli.machine import instruction_sets, library_sha256, operating_system, processor
from planq.cli.signed import read_bytes, sign_text, signer_of
from planq.cli.words import output_console
from planq.executors import DeviceError, open_device

_QUICK_RESULTS, _FULL_RESULTS = 200_000, 10_000_000
Report = dict[str, Any]


def audit(
    device: Annotated[
        str, typer.Option(metavar="all|host|cuda:N", help="Where kernels run.")
    ] = "all",
    operators: Annotated[
        str, typer.Option(metavar="REGEX", help="Only operators whose name it is found in.")
    ] = "",
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="All cases of each claim, or a few: minutes, or one."),
    ] = False,
    time_budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Begin no operator after so long."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="REPORT.json", help="Write the report there.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="REPORT.html", help="Write it as a page, too.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A.json B.json", help="Say where two reports differ, and audit not."),
    ] = None,
    sign: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="KEY.pem REPORT.json", help="Sign a report, and audit not."),
    ] = None,
    verify: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="PUBLIC.pem REPORT.json",
            help="Say whether the owner of a key signed a report, and audit not.",
        ),
    ] = None,
    results: Annotated[
        int | None,
        typer.Option(min=1, help="Compare at least as many products of tensor cores, per kernel."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Hold every kernel to what it promises, with a claim for each promise.

    The exit status is 0 if every claim held, 1 if one is refuted, and 2 if there is no answer or
    the time was up before all operators were audited.
    """
    _require_references()
    if compare is not None:
        return _compare(*(read_report(file, read_bytes(file)) for file in compare))
    if sign is not None:
        return _sign(*sign)
    if verify is not None:
        return _verify(*verify)
    made = _audit(_devices(device), _pattern(operators), full, time_budget, results)
    if output is not None:
        _write(output, json.dumps(made, indent=1, sort_keys=True) + "\n")
    if html is not None:
        from planq.audit.page import page

        _write(html, page(made))
    if as_json:
        print(json.dumps(made, indent=2))
    else:
        _show(made)
    return _status(made)


def _require_references() -> None:
    """The references need a package that no other command does, and their assertions."""
    try:
        importlib.import_module("ml_dtypes")
    except ModuleNotFoundError as error:
        raise CommandError(
            "planq audit needs the package 'ml_dtypes': pip install 'planq[audit]'"
        ) from error
    if not __debug__:
        raise CommandError("planq audit compares by assertions, which python -O leaves out")


def _devices(name: str) -> list[str]:
    """The devices that are asked for; an error says which is not there."""
    if name == "all":
        return ["host", *(f"cuda:{each.index}" for each in planq.devices())]
    try:
        open_device(name)
    except DeviceError as error:
        raise CommandError(f"{error}; planq audit cannot hold its kernels to anything") from error
    return [name]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise CommandError(f"--operators: {error} in {text!r}") from error
    return text


def _audit(
    devices: list[str], pattern: str, full: bool, budget: float | None, results: int | None
) -> Report:
    """Audits, and makes the report."""
    from planq.audit import report, sections
    from planq.audit.materials import bill_of_materials

    wanted = sections.sections(devices, pattern)
    if not wanted:
        raise CommandError(f"--operators: no operator has {pattern!r} in its name")
    begun, most = time.monotonic(), None if full else sections.QUICK
    audited: list[sections.Audited] = []
    dropped: list[str] = []
    with _progress(len(wanted)) as told:
        for section, kernels in sections.audit(wanted, most, budget, told):
            audited += kernels or ()
            if kernels is None:
                dropped.append(f"{section.device} {section.operator}")
    least = results or (_FULL_RESULTS if full else _QUICK_RESULTS)
    probes = [_as_dict(probe(open_device(each), least)) for each in devices if each != "host"]
    found = report.evidence(audited, dropped, "full" if full else "quick", probes)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    materials = bill_of_materials(library_sha256())
    return report.report(found, _machine(devices), now, time.monotonic() - begun, materials)


def _machine(devices: list[str]) -> Report:
    return {
        "processor": processor(),
        "instruction_sets": instruction_sets(),
        "os": operating_system(),
        "library_sha256": library_sha256(),
        "devices": {
            f"cuda:{each.index}": dataclasses.asdict(each)
            for each in planq.devices()
            if f"cuda:{each.index}" in devices
        },
    }


def _as_dict(found: Probe) -> Report:
    findings = [dataclasses.asdict(finding) for finding in found.findings]
    for finding in findings:
        finding["input_dtype"] = finding["input_dtype"].value
        finding["weight_dtype"] = finding["weight_dtype"].value
    return {"device": found.device, "confirmed": found.confirmed, "findings": findings}


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Shows progress on stderr if that is a terminal; yields what to call after each section."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("operators", total=total)
        yield lambda section: bar.update(
            task, advance=1, description=f"{section.device} {section.operator}"
        )


def _show(made: Report) -> None:
    """Prints operators and their claims, what was refuted, and the verdict."""
    from planq.audit import report

    console, found = output_console(), made["evidence"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("device")
    table.add_column("operator", overflow="fold")
    for header in ("kernels", "held", "runs", "not testable", "refuted"):
        table.add_column(header, justify="right")
    for (device, operator), kernels in report.by_operator(found).items():
        total = report.counts(kernels)
        states = ("held", "runs", "not testable", "refuted")
        table.add_row(device, operator, str(len(kernels)), *(f"{total[s]:,}" for s in states))
    console.print(table)
    for line in _refuted(found):
        console.print(escape(line))
    for each in found["tensor_cores"]:
        for line in _differing(each):
            console.print(escape(line))
        verdict = "confirms" if each["confirmed"] else "does not confirm"
        console.print(f"{each['device']} {verdict} the model of its tensor cores")
    console.print(_verdict(made))


def _differing(found: Report) -> Iterator[str]:
    """The products of tensor cores that differ from the model."""
    for each in found["findings"]:
        if each["differing"]:
            types = f"{each['input_dtype']} x {each['weight_dtype']}, {each['numbers']}"
            counts = f"{each['differing']:,} of {each['results']:,} results differ"
            yield f"{each['sku']}:{each['body']}, {types}: {counts}"


def _refuted(found: Report) -> Iterator[str]:
    for kernel in found["kernels"]:
        for name, each in kernel["claims"].items():
            if each["state"] == "refuted":
                yield f"{kernel['sku']}:{kernel['body']}, {name}: {each['note']}"
                yield f"  again: {kernel['repeat']}"


def _verdict(made: Report) -> str:
    from planq.audit import report

    found = made["evidence"]
    total = report.counts(found["kernels"])
    words = f"{total['held']:,} claims held in {total['runs']:,} runs"
    if total["refuted"]:
        words += f", {total['refuted']:,} refuted"
    if found["dropped"]:
        words += f"; not audited: {', '.join(found['dropped'])}"
    return f"{made['verdict'].upper()}: {words} ({made['evidence_sha256']})"


def _status(made: Report) -> int:
    if made["verdict"] == "refuted":
        return EXIT_MARKED
    if made["verdict"] == "held":
        return EXIT_OK
    raise CommandError("the time was up before every operator was audited")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CommandError(describe_os_error(error)) from error


def read_report(path: Path, text: bytes) -> Report:
    """The report in a file's text; an error says what it is instead."""
    from planq.audit.report import is_report

    try:
        made = parse(text.decode("utf-8"))
    except ValueError as error:
        raise CommandError(
            f"{path}: expected a report of planq audit, got no JSON: {error}"
        ) from error
    if not is_report(made):
        raise CommandError(f"{path}: expected a report of planq audit of format 1")
    return dict(made)


def _sign(key: Path, file: Path) -> int:
    text = read_bytes(file)
    read_report(file, text)
    print(sign_text(key, file, text))
    return EXIT_OK


def _verify(key: Path, file: Path) -> int:
    """Prints whose signature a report has; the status is 1 if it is not that of the key's owner."""
    text = read_bytes(file)
    read_report(file, text)
    owner = signer_of(key, file, text)
    print(f"{file}: signed by {owner}" if owner else f"{file}: not signed by the owner of {key}")
    return EXIT_OK if owner else EXIT_MARKED


def _compare(first: Report, second: Report) -> int:
    """Prints where two reports differ; the status is 1 if their evidence does."""
    from planq.audit import report

    console = output_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("where", "first", "second"):
        table.add_column(header, overflow="fold")
    for row in report.differences(first, second):
        table.add_row(*(escape(str(each)) for each in row))
    console.print(table)
    same = first["evidence_sha256"] == second["evidence_sha256"]
    console.print("the same evidence" if same else "other evidence")
    return EXIT_OK if same else EXIT_MARKED
