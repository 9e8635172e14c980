"""``planq layers``: the quantized linear layers of a checkpoint that another program made."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import planq
from planq.checkpoint import Layer, Layers, read_layers
from planq.cli.failure import EXIT_OK
from planq.cli.tables import progress_bar
from planq.cli.words import counted, output_console, printable, size_words


def layers(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A safetensors file, or a model's folder.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Read every layer, too: are its values sound?")
    ] = False,
    weights_only: Annotated[
        bool,
        typer.Option(
            "--weights-only",
            help="Take layers whose activations are to be quantized, too, without that.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """List the quantized linear layers of a checkpoint, and the operator that takes each.

    The formats are GPTQ, AWQ, compressed-tensors (of 4 and 8 bits), fp8 in blocks, gpt-oss's MXFP4
    and bitsandbytes. Names, types and shapes of all tensors are checked, and that none is
    left over; with --check all values as well.

    The exit status is 0, or 2 with a sentence that says what is wrong and where.
    """
    with read_layers(path, weights_only=weights_only) as found:
        if check:
            with progress_bar(path) as progress:
                total = sum(layer.nbytes for layer in found)
                for layer in found:
                    progress(layer.name, layer.nbytes, total)
                    layer.check()
        if as_json:
            print(json.dumps(_as_dict(found, checked=check), indent=2))
        else:
            _show(found, checked=check)
    return EXIT_OK


def _descriptor(layer: Layer) -> Any:
    return layer.descriptor(1, planq.DType.BFLOAT16)


def _as_dict(found: Layers, *, checked: bool) -> dict[str, Any]:
    return {
        "path": str(found.path),
        "checked": checked,
        "layers": [
            {
                "name": layer.name,
                "stored_as": layer.stored_as.value,
                "shape": list(layer.shape),
                "bytes": layer.nbytes,
                "parts": {name: part.entry.name for name, part in layer.parts.items()},
                "descriptor": _descriptor(layer).to_dict(),
            }
            for layer in found
        ],
        "rest": list(found.rest),
    }


def _show(found: Layers, *, checked: bool) -> None:
    console = output_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer", overflow="fold")
    for header in ("stored as", "n x k", "operator", "codes", "scales"):
        table.add_column(header, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for layer in found:
        desc = _descriptor(layer)
        cells = (
            printable(layer.name),
            layer.stored_as.value,
            "{} x {}".format(*layer.shape),
            layer.kind.operator,
            desc.code_dtype.value,
            _scales(desc),
            size_words(layer.nbytes),
        )
        table.add_row(*map(Text, cells))
    console.print(table)
    counts = Counter(layer.stored_as.value for layer in found)
    formats = ", ".join(f"{count} of {name}" for name, count in counts.items())
    size = size_words(sum(layer.nbytes for layer in found))
    read = ", every value read" if checked else ""
    told = f"{counted(found, 'layer')} ({formats}), {size}{read}"
    console.print(Text(f"{told}; {counted(found.rest, 'other tensor')}"))


def _scales(desc: Any) -> str:
    """What shares a scale."""
    if desc.operator == "linear_4bit" and desc.block_size is not None:
        nested = ", nested" if desc.nested_block_size else ""
        return f"{desc.codebook.value}, blocks of {desc.block_size}{nested}"
    if desc.weight_scope.kind == "channel":
        return "rows"
    zero_points = ", zero points" if desc.weight_mode is planq.Mode.ASYMMETRIC else ""
    return f"groups of {desc.weight_scope.size}{zero_points}"
