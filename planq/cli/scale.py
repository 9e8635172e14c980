"""``planq scale``: a floating model in, the same model out, which quantizes with less loss."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planq.checkpoint.formats import Form, Format
from planq.checkpoint.job import Job
from planq.checkpoint.layer_inputs import open_inputs
from planq.checkpoint.scaling import GroupReport, ScaleReport, scale_folder
from planq.checkpoint.schemes import Scheme, Search, choose_blocks, choose_groups
from planq.cli.failure import EXIT_OK
from planq.cli.patterns import compiled
from planq.cli.tables import finite_or_none, progress_bar
from planq.cli.words import counted, listed, output_console, printable, text_width
from planq.executors import open_device


def scale(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The model's folder to read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    layer_inputs: Annotated[
        Path,
        typer.Option(
            "--layer-inputs",
            metavar="INPUTS.safetensors",
            help="The rows that each layer was fed, under the name of its weight.",
        ),
    ],
    scheme: Annotated[
        Scheme,
        typer.Option(help="The scheme of planq quantize whose errors are to be less."),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="The format whose codes these are: compressed-tensors or bitsandbytes."
        ),
    ] = Format.COMPRESSED_TENSORS,
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the plans run; the bits are the same.")
    ] = "host",
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Leave an input as it is if it goes to a weight in whose name this is found.",
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", metavar="N", help="As of planq quantize."),
    ] = None,
    search: Annotated[Search, typer.Option(help="As of planq quantize.")] = Search.NONE,
    block_size: Annotated[
        int | None,
        typer.Option("--block-size", metavar="N", help="As of planq quantize."),
    ] = None,
    nested: Annotated[bool, typer.Option("--nested", help="As of planq quantize.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT if it exists, and planq made it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Scale the columns of layers by AWQ; the folder that is made computes the same.

    Layers that share an input have their columns multiplied by powers of two, and what makes this
    input, a norm or another layer, is divided by them. Then planq quantize of OUT loses less in
    what the layers make of the given inputs. It knows the places for such scales in Llama, Mistral,
    Qwen 2 and 3, Gemma 1 to 3 and BERT. planq verify IN OUT compares every byte. Load a scaled
    Gemma in the type of its files: norms add 1 to weights, so rounded weights make others.
    """
    blocks = choose_blocks(scheme, block_size, nested=nested, calibrated=False)
    groups = choose_groups(scheme, group_size, search)
    chosen = Form(form)
    chosen.check(scheme, blocks, calibrated=False)
    job = Job(
        source,
        target,
        scheme,
        overwrite=force,
        blocks=blocks,
        groups=groups,
        exclude=compiled("--exclude", exclude),
        form=chosen,
    )
    with open_inputs(layer_inputs) as inputs, progress_bar(source) as progress:
        report = scale_folder(replace(job, inputs=inputs), open_device(device), progress)
    if as_json:
        print(json.dumps(_as_dict(report), indent=2, allow_nan=False))
    else:
        _show(report, output_console())
    return EXIT_OK


def _as_dict(report: ScaleReport) -> dict[str, Any]:
    """Returns a report as JSON values; a number that is not finite is null."""
    job = report.job
    return {
        "input": str(job.source),
        "output": str(job.target),
        "scheme": job.scheme.value,
        "layer_inputs": job.inputs.sha256 if job.inputs else None,
        "device": report.device,
        "groups": [_group_dict(group) for group in report.groups],
        "carried": list(report.carried),
        "left_out": list(report.left_out),
        "digest": report.digest,
        "seconds": report.seconds,
    }


def _group_dict(group: GroupReport) -> Mapping[str, Any]:
    return {
        "layers": list(group.layers),
        "makers": list(group.makers),
        "a": group.a,
        "powers": list(group.powers),
        "relative_error_before": finite_or_none(group.before),
        "relative_error": finite_or_none(group.after),
    }


def _show(report: ScaleReport, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layers", overflow="fold")
    table.add_column("divided", overflow="fold")
    for header in ("a", "largest scale", "error of outputs", "scaled"):
        table.add_column(header, justify="right", no_wrap=True)
    for group in report.groups:
        table.add_row(*map(Text, _cells(group)))
    console.print(table)
    for line in _told(report):
        console.print(Text(line, overflow="fold"), width=text_width(console))


def _cells(group: GroupReport) -> Iterator[str]:
    """The cells of one row."""
    yield "\n".join(map(printable, group.layers))
    yield "\n".join(map(printable, group.makers))
    yield f"{group.a:g}"
    yield str(group.largest)
    yield f"{group.before:.4f}"
    yield f"{group.after:.4f}"


def _told(report: ScaleReport) -> Iterator[str]:
    """The lines below the table."""
    scaled = [group for group in report.groups if group.largest > 1]
    yield (
        f"{len(scaled)} of {counted(report.groups, 'input')} scaled for {report.job.scheme.value}, "
        f"on {report.device} in {report.seconds:.2f} s"
    )
    ratios = [group.after / group.before for group in scaled if group.before > 0]
    if ratios:
        least, largest = min(ratios), max(ratios)
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if least > 0 else 0.0
        yield (
            f"errors of their outputs, in nearest codes: {least:.3f} to {largest:.3f} of those "
            f"without scales, mean {mean:.3f}"
        )
    if report.carried:
        yield f"copied as they are: {listed(list(map(printable, report.carried)))}"
    if report.left_out:
        yield f"files with weights, left out: {listed(list(map(printable, report.left_out)))}"
    yield f"digest of the output: {report.digest}"
