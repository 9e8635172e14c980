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
from planq.cli.signed import read_bytes, sign_text, signer_of
from planq.cli.words import output_console
from planq.executors import DeviceError, open_device
from planq.machine import instruction_sets, library_sha256, operating_system, processor

_QUICK_RESULTS, _FULL_RESULTS = 200_000, 10_000_000
Report = dict[str, Any]


def audit(
    device: Annotated[
        str, typer.Option(metavar="all|host|cuda:N", help="Where kernels run.")
    ] = "all",
    operators: Annotated[
        str, typer.Option(metavar="REGEX", help="Only operators whose name it is found in.")
    ] = "",
    claims: Annotated[
        str, typer.Option(metavar="REGEX", help="Only claims whose name it is found in.")
    ] = "",
    plans: Annotated[
        list[Path] | None,
        typer.Option(metavar="PLAN.json", help="Only what these stored plans run; repeatable."),
    ] = None,
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
    check: Annotated[
        bool,
        typer.Option("--check", help="Only compare with recorded digests, in all cases."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="GPU.json", help="Record the digests of one GPU, and audit not."),
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
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.gguf",
            help="Compare the digests of texts by a model on these devices, and audit not.",
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

    With --network, continue seven texts by Gemma 3 in a GGUF file instead: on each device, alone
    and together, on one thread and on all. All have to have one digest of their logits.

    The exit status is 0 if every claim held, 1 if one is refuted, and 2 if there is no answer or
    the time was up before all operators were audited.
    """
    if network is not None:
        return _network(network, _devices(device), as_json=as_json)
    _require_references()
    if compare is not None:
        return _compare(*(read_report(file, read_bytes(file)) for file in compare))
    if sign is not None:
        return _sign(*sign)
    if verify is not None:
        return _verify(*verify)
    if record is not None:
        return _record(_devices(device), record)
    if check:
        full, claims = True, "^recorded$"
    asked = _Asked(
        _devices(device),
        _pattern(operators, "--operators"),
        _pattern(claims, "--claims"),
        _skus(plans),
        full,
        time_budget,
        0 if claims else results or (_FULL_RESULTS if full else _QUICK_RESULTS),
    )
    made = _audit(asked)
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


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What to audit; `results` of tensor cores, 0 for none."""

    devices: list[str]
    operators: str
    claims: str
    skus: frozenset[str] | None
    full: bool
    budget: float | None
    results: int


def _network(path: Path, devices: list[str], *, as_json: bool) -> int:
    """Prints the digests of a model's texts; the status is 1 if there are several."""
    from planq.checkpoint.gguf_files import read_gguf
    from planq.networks.audit import Found, audited

    found: list[Found] = []
    with read_gguf(path) as files, _progress("texts") as told:
        found += audited(files, devices, told)
    digests = {each.digest for each in found}
    if as_json:
        rows = [each._asdict() for each in found]
        print(json.dumps({"equal": len(digests) == 1, "found": rows}, indent=2))
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for header in Found._fields:
            table.add_column(header, overflow="fold")
        for each in found:
            table.add_row(*map(escape, each))
        console = output_console()
        console.print(table)
        verdict = "one digest" if len(digests) == 1 else f"{len(digests)} DIGESTS"
        console.print(f"{verdict} in {len(found)} runs on {', '.join(devices)}")
    return EXIT_OK if len(digests) == 1 else EXIT_MARKED


def _pattern(text: str, option: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise CommandError(f"{option}: {error} in {text!r}") from error
    return text


def _skus(plans: list[Path] | None) -> frozenset[str] | None:
    """What stored plans run; None: there are no plans."""
    if not plans:
        return None
    found = set()
    for path in plans:
        try:
            stored = parse(read_bytes(path))
        except ValueError as error:
            raise CommandError(f"{path}: expected a stored plan, got no JSON: {error}") from error
        sku = stored.get("sku") if isinstance(stored, dict) else None
        if not isinstance(sku, str):
            raise CommandError(f"{path}: expected a stored plan, which has a SKU")
        found.add(sku)
    return frozenset(found)


def _record(devices: list[str], path: Path) -> int:
    """Writes what the GPU's kernels write, for a package of others to be held to."""
    from planq.audit import golden_files, sections

    names = [name for name in devices if name != "host"]
    if len(names) != 1:
        raise CommandError(f"--record: expected --device cuda:N, one GPU, got {len(names)}")
    (facts,) = (each for each in planq.devices() if f"cuda:{each.index}" == names[0])
    with _progress("parts") as told:
        content = golden_files.record(sections.place(names[0]), facts.name, told)
    try:
        golden_files.write(path, content)
    except OSError as error:
        raise CommandError(describe_os_error(error)) from error
    count = sum(len(each["cases"]) for each in content["operators"].values())
    output_console().print(f"{count:,} digests of {facts.name}: {escape(str(path))}")
    return EXIT_OK


def _audit(asked: _Asked) -> Report:
    """Audits, and makes the report."""
    from planq.audit import report, sections
    from planq.audit.materials import bill_of_materials

    wanted = sections.sections(asked.devices, asked.operators, asked.skus, asked.claims)
    if not wanted and asked.skus is None:
        raise CommandError(f"--operators: no operator has {asked.operators!r} in its name")
    if not wanted:
        raise CommandError("--plans: no kernel of these devices and operators is one of the plans'")
    if not sections.claims_of(wanted[0]):
        raise CommandError(f"--claims: no claim has {asked.claims!r} in its name")
    begun, most = time.monotonic(), None if asked.full else sections.QUICK
    audited: list[sections.Audited] = []
    dropped: list[str] = []
    with _progress("operators") as told:
        done: list[sections.Section] = []

        def count(section: sections.Section) -> None:
            done.append(section)
            told(len(done), len(wanted))

        for section, kernels in sections.audit(wanted, most, asked.budget, count):
            audited += kernels or ()
            if kernels is None:
                dropped.append(f"{section.device} {section.operator}")
    gpus = [each for each in asked.devices if each != "host"] if asked.results else []
    probes = [_as_dict(probe(open_device(each), asked.results)) for each in gpus]
    found = report.evidence(audited, dropped, "full" if asked.full else "quick", probes)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    materials = bill_of_materials(library_sha256())
    seconds = time.monotonic() - begun
    return report.report(found, _machine(asked.devices), now, seconds, materials)


def _machine(devices: list[str]) -> Report:
    return {
        "processor": processor(),
        "instruction_sets": instruction_sets(),
        "os": operating_system(),
        "library_sha256": library_sha256(),
        "devices": {
            f"cuda:{each.index}": {**dataclasses.asdict(each), **_facts(each.index)}
            for each in planq.devices()
            if f"cuda:{each.index}" in devices
        },
    }


def _facts(index: int) -> Report:
    from planq.audit.cuda import facts

    return dict(facts(index))


def _as_dict(found: Probe) -> Report:
    findings = [dataclasses.asdict(finding) for finding in found.findings]
    for finding in findings:
        finding["input_dtype"] = finding["input_dtype"].value
        finding["weight_dtype"] = finding["weight_dtype"].value
    return {"device": found.device, "confirmed": found.confirmed, "findings": findings}


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    """Shows on stderr, if that is a terminal, how many of how many are done, as it is told."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, all_of_them: bar.update(task, completed=done, total=all_of_them)


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
