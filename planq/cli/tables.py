"""Output about a checkpoint file: progress bar, summary, table of its weights, JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

import planq
from planq.checkpoint.digests import short
from planq.cli.failure import EXIT_MARKED, EXIT_OK
from planq.cli.words import guarantee_words, output_console, printable, say, size_words, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from planq.checkpoint import job as work
    from planq.checkpoint.reports import FileReport, TensorReport

# The most marked weights that a summary lists.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a printed report that differ between commands.

    Attributes:
        columns: The columns between kernel and sizes, by header; a cell for each weight.
        told: Further lines about all weights.
        read: What the kernels read, as a noun.
        marked: What a marked row means.
        digests: The digests of whole files, by label.
    """

    columns: Mapping[str, Sequence[str]]
    told: Sequence[str]
    read: str
    marked: str
    digests: Mapping[str, str]


@contextmanager
def progress_bar(source: Path) -> Iterator[work.Progress]:
    """Shows progress on stderr if that is a terminal; yields what to call before each tensor."""
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


def show_report(report: FileReport, words: Words, console: Console, *, table: bool) -> None:
    """Prints a summary of a file, and a table of its weights if wanted.

    The summary is wrapped to a readable width, the table to the console's. Rows of the table name
    kernels by number, and digests by their start.

    Args:
        report: What became of a file.
        words: The parts that differ between commands.
        console: Where to print.
        table: Whether to show all weights; otherwise the first of the marked ones.
    """
    marked = [number for number, tensor in enumerate(report.tensors) if tensor.non_finite]
    shown = range(len(report.tensors)) if table else marked[:_SHOWN]
    kernels = _kernels(report.tensors)
    if shown:
        console.print(_table(report, shown, words, list(kernels)))
    for line in _summary(report, words, kernels, len(shown)):
        console.print(Text(line, overflow="fold"), width=text_width(console))


def report_dict(report: FileReport, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a report as JSON values.

    Args:
        report: What became of a file.
        request: Further values about the whole file.
    """
    build = planq.build_info()
    return {
        "input": str(report.source),
        "output": str(report.target),
        **request,
        "device": report.device,
        "planq": {"version": build.version, "build_id": build.build_id},
        "tensors": [_tensor_dict(tensor) for tensor in report.tensors],
        "digest": report.digest,
        "copied": {"tensors": report.copied_tensors, "bytes": report.copied_bytes},
        "totals": _totals_dict(report),
    }


def tell(
    report: FileReport, values: Mapping[str, Any] | None, show: Callable[[Console], None]
) -> int:
    """Prints a report and returns the exit status; warns even if the report cannot be printed.

    Args:
        report: What became of a file.
        values: The report as JSON values, to be printed; None to call ``show``.
        show: Prints the report as text.
    """
    try:
        if values is not None:
            print(json.dumps(values, indent=2, allow_nan=False))
        else:
            show(output_console())
    finally:
        status = _exit_status(report)
    return status


def _exit_status(report: FileReport) -> int:
    """Warns of marked weights; returns the exit status of a command that is done."""
    if not report.marked:
        return EXIT_OK
    marked = len(report.marked)
    which = f"{_weights(marked)} {'has' if marked == 1 else 'have'}"
    say("warning", f"{which} values that are not finite")
    return EXIT_MARKED


def finite_or_none(value: float) -> float | None:
    """Returns the number, or None if it is not finite, as JSON has no such numbers."""
    return value if math.isfinite(value) else None


def _table(
    report: FileReport, shown: Sequence[int], words: Words, kernels: list[tuple[str, str]]
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tensor", overflow="fold")
    for header in ("kernel", *words.columns, "before", "after"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("digest", no_wrap=True)
    for number in shown:
        tensor = report.tensors[number]
        kernel = f"[{kernels.index(_kernel(tensor)) + 1}]"
        _add_row(table, tensor, (kernel, *(cells[number] for cells in words.columns.values())))
    return table


def _kernel(tensor: TensorReport) -> tuple[str, str]:
    return tensor.sku, guarantee_words(tensor.guarantee)


def _kernels(tensors: Sequence[TensorReport]) -> Counter[tuple[str, str]]:
    """Counts the weights of each kernel and guarantee, in the order of their rows."""
    return Counter(map(_kernel, tensors))


def _add_row(table: Table, tensor: TensorReport, middle: tuple[str, ...]) -> None:
    cells = (
        printable(tensor.name),
        *middle,
        size_words(tensor.bytes_before),
        size_words(tensor.bytes_after),
        short(tensor.digest),
    )
    table.add_row(*(Text(cell) for cell in cells), style="bold red" if tensor.non_finite else "")


def _summary(
    report: FileReport, words: Words, kernels: Counter[tuple[str, str]], shown: int
) -> Iterator[str]:
    if report.marked:
        hidden = max(0, len(report.marked) - shown)
        more = f"; --table shows {_weights(hidden)} more" if hidden else ""
        yield f"NOT FINITE (n): {words.marked}{more}"
    totals = _totals_dict(report)
    before, after = totals["weight_bytes_before"], totals["weight_bytes_after"]
    yield (
        f"{_weights(len(report.tensors))} {size_words(before)} -> {size_words(after)} "
        f"({before / max(after, 1):.2f}x), {report.copied_tensors} tensors copied "
        f"({size_words(report.copied_bytes)}), "
        f"file {size_words(report.source_bytes)} -> {size_words(report.target_bytes)}"
    )
    for number, ((sku, guarantee), count) in enumerate(kernels.items(), 1):
        yield f"[{number}] {sku}: {guarantee} ({_weights(count)})"
    yield from words.told
    yield (
        f"{report.device}: kernels {totals['kernel_gb_per_s']:.2f} GB/s of {words.read}, "
        f"all told {totals['gb_per_s']:.2f} GB/s of input in {report.seconds:.2f} s"
    )
    for what, digest in words.digests.items():
        yield f"{what}: {digest}"


def _weights(count: int) -> str:
    return f"{count} weight{'' if count == 1 else 's'}"


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
