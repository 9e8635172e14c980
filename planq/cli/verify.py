"""``planq verify``: whether a quantized file or folder is what its source becomes."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from planq.checkpoint.calibration import read_ranges
from planq.checkpoint.folders import compare_folder
from planq.checkpoint.gguf import SUFFIX, compare_gguf
from planq.checkpoint.job import Comparison, compare_file, job_of, this_build
from planq.checkpoint.layer_inputs import open_inputs
from planq.checkpoint.scaling import compare_scaled, is_scaled
from planq.cli.failure import EXIT_MARKED, EXIT_OK, CommandError
from planq.cli.tables import progress_bar
from planq.cli.words import output_console, printable, say
from planq.executors import open_device


def verify(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The safetensors file or folder it was made of.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="What planq quantize or planq scale made of it.")
    ],
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the plans run; the bits are the same.")
    ] = "host",
    calibrate: Annotated[
        Path | None,
        typer.Option(metavar="RANGES.json", help="The ranges that it was made with, if any."),
    ] = None,
    layer_inputs: Annotated[
        Path | None,
        typer.Option(
            "--layer-inputs",
            metavar="INPUTS.safetensors",
            help="The layers' inputs that GPTQ or planq scale made it with, if one did.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Quantize or scale the source again, with the options that OUT tells; compare every byte.

    What it cannot know is which build of planq made OUT: the names of version and build are those
    that OUT tells, the same in all of its files, and a warning says so where they are others than
    this planq's. Every other byte is compared, also where another build made it.

    The exit status is 0 if nothing differs, 1 if something does, and 2 if there is no answer.
    """
    ranges = None if calibrate is None else read_ranges(calibrate)
    executor = open_device(device)
    opened = nullcontext() if layer_inputs is None else open_inputs(layer_inputs)
    with opened as inputs, progress_bar(source) as progress:
        if target.is_dir() and is_scaled(target):
            if ranges is not None:
                raise CommandError("--calibrate: a folder is scaled without given ranges")
            found = compare_scaled(source, target, executor, progress, inputs=inputs)
        elif target.is_dir():
            found = compare_folder(source, target, ranges, executor, progress, inputs=inputs)
        elif target.suffix == SUFFIX:
            if ranges is not None:
                raise CommandError("--calibrate: a GGUF file has no given ranges")
            if inputs is not None:
                raise CommandError("--layer-inputs: a GGUF file is made without them")
            found = (compare_gguf(source, target, executor, progress),)
        else:
            found = (compare_file(job_of(source, target, ranges, inputs), executor, progress),)
    if as_json:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        _show(found)
    return EXIT_MARKED if any(file.differing for file in found) else EXIT_OK


def _as_dict(found: Sequence[Comparison]) -> dict[str, object]:
    return {
        "equal": not any(file.differing for file in found),
        "same_build": all(file.same_build for file in found),
        "made_by": [
            {"version": version, "build_id": build}
            for version, build in sorted({file.made_by for file in found})
        ],
        "files": [{"path": str(file.path), "differing": file.differing} for file in found],
    }


def _show(found: Sequence[Comparison]) -> None:
    console = output_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("file", "tensor", "what differs"):
        table.add_column(header, overflow="fold")
    for file in found:
        for name, what in file.differing.items():
            table.add_row(*map(Text, (printable(file.path.name), printable(name), what)))
    if table.row_count:
        console.print(table)
    verdict = f"{table.row_count} differ" if table.row_count else "every byte is equal"
    console.print(Text(f"{_again(found)}: {verdict}"))
    for version, build in sorted({file.made_by for file in found if not file.same_build}):
        made_by = f"planq {printable(version) or '?'}, build {printable(build) or '?'}"
        mine = "planq {}, build {}".format(*this_build())
        say("warning", f"made by {made_by}, by its own account; compared by {mine}")


def _again(found: Sequence[Comparison]) -> str:
    """What was made again, and how much of it."""
    inputs = sum(file.scaled for file in found)
    weights = sum(len(file.tensors) for file in found)
    count, word, done = (inputs, "input", "scaled") if inputs else (weights, "weight", "quantized")
    return f"{count} {word}{'' if count == 1 else 's'} {done} again"
