"""The words around a checkpoint file: a progress bar, a table of its weights, totals, JSON."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

import planq
from planq.cli.failure import EXIT_MARKED, EXIT_OK
from planq.cli.words import guarantee_words, printable, say, size_words, whole_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from planq.cli import job as work
    from planq.cli.reports import FileReport, TensorReport

_SHORT_DIGEST = 12


@dataclass(frozen=True, slots=True)
class Words:
    """How a command speaks of its report.

    Attributes:
        columns: The columns between kernel and sizes, by header: a cell for each weight.
        digested: What the digests are of.
        read: What the kernels read.
        marked: What a row that is marked means.
    """

    columns: Mapping[str, Sequence[str]]
    digested: str
    read: str
    marked: str


@contextmanager
def progress_bar(source: Path) -> Iterator[work.Progress]:
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


def show_report(report: FileReport, words: Words, console: Console) -> None:
    """Prints a report as a table and its totals.

    Where the whole table does not fit the console, the rows refer to a list of kernels below it and
    digests are cut; every line of a table that goes to a file is whole.

    Args:
        report: What became of a file.
        words: How to speak of it.
        console: Where to print.
    """
    table = _full_table(report.tensors, words)
    if whole_width(table) <= console.width:
        console.print(table)
    else:
        kernels = _kernels(report.tensors)
        console.print(_narrow_table(report.tensors, words, kernels))
        for (sku, guarantee), number in kernels.items():
            console.print(Text(f"[{number}] {sku}: {guarantee}"), soft_wrap=True)
    for line in _totals(report, words):
        console.print(Text(line), soft_wrap=True)


def report_dict(report: FileReport, request: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Returns a report as JSON values.

    Args:
        report: What became of a file.
        request: What else was asked for.
        digest: The key of the digest of all digests.
    """
    build = planq.build_info()
    return {
        "input": str(report.source),
        "output": str(report.target),
        **request,
        "device": report.device,
        "planq": {"version": build.version, "build_id": build.build_id},
        "tensors": [_tensor_dict(tensor) for tensor in report.tensors],
        digest: report.digest,
        "copied": {"tensors": report.copied_tensors, "bytes": report.copied_bytes},
        "totals": _totals_dict(report),
    }


def exit_status(report: FileReport) -> int:
    """Warns of weights that are marked; returns the exit status of a command that is done."""
    if not report.marked:
        return EXIT_OK
    marked = len(report.marked)
    which = "1 weight has" if marked == 1 else f"{marked} weights have"
    say("warning", f"{which} values that are not finite")
    return EXIT_MARKED


def finite_or_none(value: float) -> float | None:
    """Returns a number that JSON has, or None."""
    return value if math.isfinite(value) else None


def _full_table(tensors: Sequence[TensorReport], words: Words) -> Table:
    table = Table("tensor", "SKU", "guarantee", box=box.SIMPLE_HEAD, pad_edge=False)
    _add_columns(table, *words.columns, "before", "after")
    table.add_column(f"SHA-256 of the {words.digested}")
    for number, tensor in enumerate(tensors):
        kernel = (tensor.sku, guarantee_words(tensor.guarantee))
        _add_row(table, tensor, (*kernel, *_cells(words, number)), tensor.sha256)
    return table


def _narrow_table(
    tensors: Sequence[TensorReport], words: Words, kernels: dict[tuple[str, str], int]
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tensor", overflow="fold")
    _add_columns(table, "kernel", *words.columns, "before", "after")
    table.add_column("SHA-256", no_wrap=True)
    for number, tensor in enumerate(tensors):
        kernel = f"[{kernels[tensor.sku, guarantee_words(tensor.guarantee)]}]"
        digest = f"{tensor.sha256[:_SHORT_DIGEST]}..."
        _add_row(table, tensor, (kernel, *_cells(words, number)), digest)
    return table


def _cells(words: Words, number: int) -> Iterator[str]:
    return (cells[number] for cells in words.columns.values())


def _kernels(tensors: Sequence[TensorReport]) -> dict[tuple[str, str], int]:
    """Numbers the kernels of a report, with what they promise, from 1."""
    seen = [(tensor.sku, guarantee_words(tensor.guarantee)) for tensor in tensors]
    return {kernel: number for number, kernel in enumerate(dict.fromkeys(seen), 1)}


def _add_columns(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)


def _add_row(table: Table, tensor: TensorReport, middle: tuple[str, ...], digest: str) -> None:
    cells = (
        printable(tensor.name),
        *middle,
        size_words(tensor.bytes_before),
        size_words(tensor.bytes_after),
        digest,
    )
    table.add_row(*(Text(cell) for cell in cells), style="bold red" if tensor.non_finite else "")


def _totals(report: FileReport, words: Words) -> Iterator[str]:
    totals = _totals_dict(report)
    before, after = totals["weight_bytes_before"], totals["weight_bytes_after"]
    yield (
        f"{len(report.tensors)} weights {size_words(before)} -> {size_words(after)} "
        f"({before / max(after, 1):.2f}x), {report.copied_tensors} tensors copied "
        f"({size_words(report.copied_bytes)}), "
        f"file {size_words(report.source_bytes)} -> {size_words(report.target_bytes)}"
    )
    yield (
        f"{report.device}: kernels {totals['kernel_gb_per_s']:.2f} GB/s of {words.read}, "
        f"all told {totals['gb_per_s']:.2f} GB/s of input in {report.seconds:.2f} s"
    )
    yield f"SHA-256 of all digests: {report.digest}"
    if report.marked:
        yield f"NOT FINITE (n): {words.marked}"


def _tensor_dict(tensor: TensorReport) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "status": "not_finite" if tensor.non_finite else "ok",
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "sku": tensor.sku,
        "guarantee": tensor.guarantee.to_dict(),
        "bytes_before": tensor.bytes_before,
        "bytes_after": tensor.bytes_after,
        "sha256": tensor.sha256,
    }


def _totals_dict(report: FileReport) -> dict[str, Any]:
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
