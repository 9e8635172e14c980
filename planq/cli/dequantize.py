"""``planq dequantize``: a quantized checkpoint file in, a floating checkpoint file out."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import planq
from planq.checkpoint.gguf import SUFFIX, restore_gguf
from planq.checkpoint.restore import RestoreJob, RestoreReport, restore_file
from planq.cli.failure import EXIT_MARKED
from planq.cli.tables import Words, progress_bar, report_dict, show_report, tell
from planq.cli.words import say
from planq.executors import open_device

_VERIFIED = "verified: every tensor of the input has the digest that its metadata tells"
_DAMAGED = "DAMAGED: the input has not the digests that its metadata tells"
_NOT_COMPARED = "not compared: the input has no digests, as planq quantize did not write it"


class Restored(StrEnum):
    """What ``--dtype`` takes."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def dequantize(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN.safetensors", help="A file that planq quantize or bitsandbytes wrote."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT.safetensors", help="The model file to make.")
    ],
    dtype: Annotated[
        Restored | None,
        typer.Option(help="The type of the restored weights; each its own again if left out."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the plans run; the bits are the same.")
    ] = "host",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace OUT.safetensors if it exists, and go on with an input that is damaged.",
        ),
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Show what became of each weight, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Restore the weights of a file that is quantized; copy the rest unchanged.

    The file is one of planq quantize, or of bitsandbytes in 4 bits. Scales, zero points, states and
    planq's metadata are left out. A file of planq quantize has digests of all that it holds: where
    anything else stands in it, it is refused, or with --force restored with a warning. The output
    gets its name only when it is complete. The exit status is 1 if a restored weight holds a NaN or
    an infinity (its row is marked) or the input was damaged, 2 if nothing was written, and 3 if the
    output is complete, but its report could not be printed.
    """
    wanted = planq.DType(dtype.value) if dtype else None
    job = RestoreJob(source, target, wanted, overwrite=force, damaged_too=force)
    with progress_bar(source) as progress:
        run = restore_gguf if source.suffix == SUFFIX else restore_file
        report = run(job, open_device(device), progress)
    values = as_dict(report) if as_json else None
    status = tell(report, values, lambda console: show(report, console, table=table))
    if not report.damaged:
        return status
    say("warning", f"{source} is damaged: it has not the digests that its metadata tells")
    return EXIT_MARKED


def show(report: RestoreReport, console: Console, *, table: bool) -> None:
    """Prints a report.

    Args:
        report: What became of a file.
        console: Where to print.
        table: Whether to show every weight.
    """
    columns = {
        "values": [
            f"NOT FINITE ({tensor.non_finite})" if tensor.non_finite else tensor.dtype
            for tensor in report.tensors
        ]
    }
    words = Words(
        columns,
        told=[_VERIFIED if report.verified else _DAMAGED if report.damaged else _NOT_COMPARED],
        read="codes and scales",
        marked="n restored values are a NaN or an infinity",
        digests={
            "digest of the input": report.input_digest,
            "digest of the output": report.digest,
        },
    )
    show_report(report, words, console, table=table)


def as_dict(report: RestoreReport) -> dict[str, Any]:
    """Returns a report as JSON values."""
    request = {
        "verified": report.verified,
        "damaged": report.damaged,
        "input_digest": report.input_digest,
    }
    values = report_dict(report, request)
    for row, tensor in zip(values["tensors"], report.tensors, strict=True):
        row["sha256"] = tensor.digest
        row["non_finite_values"] = tensor.non_finite
    return values
