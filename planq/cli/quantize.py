"""``planq quantize``: a checkpoint file in, a quantized checkpoint file out."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

import planq
from planq.cli import job as work
from planq.cli.devices import open_device
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError
from planq.cli.schemes import Scheme
from planq.cli.words import (
    guarantee_words,
    output_console,
    printable,
    size_words,
    whole_width,
)

_SHORT_DIGEST = 12


def quantize(
    source: Annotated[
        Path, typer.Argument(metavar="IN.safetensors", help="The model file to read.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT.safetensors", help="The model file to make.")
    ],
    scheme: Annotated[Scheme, typer.Option(help="How weights are quantized.")],
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the plans run; the bits are the same.")
    ] = "host",
    include: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Quantize only the weights in whose name this is found."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT.safetensors if it exists.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Quantize the 2-D floating weights of a safetensors file; copy the rest unchanged.

    Each weight NAME becomes its codes under the same NAME, and NAME_scale. The output gets its
    name only when it is complete. The exit status is 1 if a weight holds a NaN or an infinity (its
    segment then dequantizes to NaN, and its row is marked), and 2 if nothing was written.
    """
    job = work.Job(source, target, scheme, _compile(include), force)
    with _progress_bar(source) as progress:
        report = work.quantize_file(job, open_device(device), progress)
    if as_json:
        print(json.dumps(as_dict(report), indent=2, allow_nan=False))
    else:
        show(report, output_console())
    if report.marked:
        marked = len(report.marked)
        which = "1 weight has" if marked == 1 else f"{marked} weights have"
        print(f"planq: warning: {which} values that are not finite", file=sys.stderr)
        return EXIT_MARKED
    return EXIT_OK


def show(report: work.JobReport, console: Console) -> None:
    """Prints a report as a table and its totals.

    Where the whole table does not fit the console, the rows refer to a list of kernels below it and
    digests are cut; every line of a table that goes to a file is whole.

    Args:
        report: What became of a file.
        console: Where to print.
    """
    table = _full_table(report)
    if whole_width(table) <= console.width:
        console.print(table)
    else:
        kernels = _kernels(report)
        console.print(_narrow_table(report, kernels))
        for (sku, guarantee), number in kernels.items():
            console.print(Text(f"[{number}] {sku}: {guarantee}"), soft_wrap=True)
    for line in _totals(report):
        console.print(Text(line), soft_wrap=True)


def as_dict(report: work.JobReport) -> dict[str, Any]:
    """Returns a report as JSON values; a ratio that is not a finite number is null."""
    build = planq.build_info()
    return {
        "input": str(report.job.source),
        "output": str(report.job.target),
        "scheme": report.job.scheme.value,
        "device": report.device,
        "planq": {"version": build.version, "build_id": build.build_id},
        "tensors": [_tensor_dict(tensor) for tensor in report.tensors],
        "codes_sha256": report.digest,
        "copied": {"tensors": report.copied_tensors, "bytes": report.copied_bytes},
        "totals": _totals_dict(report),
    }


def _compile(include: str | None) -> re.Pattern[str] | None:
    try:
        return None if include is None else re.compile(include)
    except re.error as error:
        raise CommandError(f"--include: not a regular expression: {error}") from error


@contextmanager
def _progress_bar(source: Path) -> Iterator[work.Progress]:
    """Shows on stderr how far the file is, if a person looks; yields what to call per tensor."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task(printable(source.name), total=None)
        done = 0

        def advance(name: str, nbytes: int, total: int) -> None:
            nonlocal done
            bar.update(task, description=printable(name), completed=done, total=total)
            done += nbytes

        yield advance


def _full_table(report: work.JobReport) -> Table:
    table = Table("tensor", "SKU", "guarantee", box=box.SIMPLE_HEAD, pad_edge=False)
    _add_columns(table, "SQNR dB", "before", "after")
    table.add_column("SHA-256 of the codes")
    for tensor in report.tensors:
        kernel = (tensor.sku, guarantee_words(tensor.guarantee))
        _add_row(table, tensor, kernel, tensor.sha256)
    return table


def _narrow_table(report: work.JobReport, kernels: dict[tuple[str, str], int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tensor", overflow="fold")
    _add_columns(table, "kernel", "SQNR dB", "before", "after")
    table.add_column("SHA-256", no_wrap=True)
    for tensor in report.tensors:
        number = kernels[tensor.sku, guarantee_words(tensor.guarantee)]
        _add_row(table, tensor, (f"[{number}]",), f"{tensor.sha256[:_SHORT_DIGEST]}...")
    return table


def _kernels(report: work.JobReport) -> dict[tuple[str, str], int]:
    """Numbers the kernels of a report, with what they promise, from 1."""
    seen = [(tensor.sku, guarantee_words(tensor.guarantee)) for tensor in report.tensors]
    return {kernel: number for number, kernel in enumerate(dict.fromkeys(seen), 1)}


def _add_columns(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)


def _add_row(table: Table, tensor: work.TensorReport, kernel: tuple[str, ...], digest: str) -> None:
    cells = (
        printable(tensor.name),
        *kernel,
        _quality_words(tensor),
        size_words(tensor.bytes_before),
        size_words(tensor.bytes_after),
        digest,
    )
    style = "bold red" if tensor.non_finite_segments else ""
    table.add_row(*(Text(cell) for cell in cells), style=style)


def _quality_words(tensor: work.TensorReport) -> str:
    if tensor.non_finite_segments:
        return f"NOT FINITE ({tensor.non_finite_segments})"
    if math.isinf(tensor.sqnr_db):
        return "exact"
    return "no signal" if math.isnan(tensor.sqnr_db) else f"{tensor.sqnr_db:.2f}"


def _totals(report: work.JobReport) -> Iterator[str]:
    totals = _totals_dict(report)
    before, after = totals["weight_bytes_before"], totals["weight_bytes_after"]
    yield (
        f"{len(report.tensors)} weights {size_words(before)} -> {size_words(after)} "
        f"({before / max(after, 1):.2f}x), {report.copied_tensors} tensors copied "
        f"({size_words(report.copied_bytes)}), "
        f"file {size_words(report.source_bytes)} -> {size_words(report.target_bytes)}"
    )
    yield (
        f"{report.device}: kernels {totals['kernel_gb_per_s']:.2f} GB/s of weights, "
        f"all told {totals['gb_per_s']:.2f} GB/s of input in {report.seconds:.2f} s"
    )
    yield f"SHA-256 of all digests: {report.digest}"
    if report.marked:
        yield "NOT FINITE (n): n segments hold a NaN or an infinity, and dequantize to NaN"


def _tensor_dict(tensor: work.TensorReport) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "status": "not_finite" if tensor.non_finite_segments else "ok",
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "sku": tensor.sku,
        "guarantee": tensor.guarantee.to_dict(),
        "sqnr_db": tensor.sqnr_db if math.isfinite(tensor.sqnr_db) else None,
        "non_finite_segments": tensor.non_finite_segments,
        "bytes_before": tensor.bytes_before,
        "bytes_after": tensor.bytes_after,
        "sha256": tensor.sha256,
    }


def _totals_dict(report: work.JobReport) -> dict[str, Any]:
    before = sum(tensor.bytes_before for tensor in report.tensors)
    kernels = report.kernel_seconds
    return {
        "weight_bytes_before": before,
        "weight_bytes_after": sum(tensor.bytes_after for tensor in report.tensors),
        "file_bytes_before": report.source_bytes,
        "file_bytes_after": report.target_bytes,
        "seconds": report.seconds,
        "kernel_seconds": kernels,
        "gb_per_s": report.source_bytes / report.seconds / 1e9,
        "kernel_gb_per_s": before / kernels / 1e9 if kernels else 0.0,
    }
