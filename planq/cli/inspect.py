"""``planq inspect``: the tensors and the metadata of a checkpoint, whoever made it."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import json
import math
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planq.checkpoint.gguf import SUFFIX
from planq.checkpoint.gguf_files import GgufFiles, read_gguf
from planq.checkpoint.shards import Shards
from planq.cli.failure import EXIT_OK
from planq.cli.words import counted, output_console, printable, size_words

# What is shown of a long value.
_ELEMENTS, _LETTERS = 4, 60


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A GGUF file, a safetensors file, or a folder of the latter."
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """List the tensors of a checkpoint, and what its metadata says.

    Only headers are read, and checked in full. Of a GGUF file that is split, name the first part.
    Tensors may have any type of ggml, also those that planq does not restore.

    The exit status is 0, or 2 with a sentence that says what is wrong and where.
    """
    with closing(read_gguf(path) if path.suffix == SUFFIX else Shards(path)) as found:
        if as_json:
            print(json.dumps(_as_dict(found), indent=2))
        else:
            _show(found, output_console())
    return EXIT_OK


def _as_dict(found: GgufFiles | Shards) -> dict[str, Any]:
    return {
        "path": str(found.path),
        **_container(found),
        "metadata": {key: _plain(value) for key, value in found.metadata.items()},
        "tensors": [
            {
                "name": entry.name,
                "type": entry.dtype,
                "shape": list(entry.shape),
                "bytes": entry.nbytes,
                "file": found.home(entry.name).name,
                "offset": entry.offset,
            }
            for entry in found.by_name.values()
        ],
    }


def _container(found: GgufFiles | Shards) -> dict[str, Any]:
    """The facts of the format."""
    if isinstance(found, Shards):
        return {"format": "safetensors"}
    first = found.files[0]
    return {"format": "gguf", "version": first.version, "alignment": first.alignment}


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that are not finite become words."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _show(found: GgufFiles | Shards, console: Console) -> None:
    if found.metadata:
        console.print(_facts(found))
    console.print(_tensors(found))
    entries = found.by_name.values()
    counts = Counter(entry.dtype for entry in entries)
    types = ", ".join(f"{count} of {name}" for name, count in counts.items())
    told = counted(entries, "tensor") + (f" ({types})" if types else "")
    size = size_words(sum(entry.nbytes for entry in entries))
    container = ", ".join(f"{name} {value}" for name, value in _container(found).items())
    console.print(Text(printable(f"{told}, {size}; {container}")))


def _facts(found: GgufFiles | Shards) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in ("metadata", "value"):
        table.add_column(header, overflow="fold")
    for key, value in found.metadata.items():
        table.add_row(Text(printable(key)), Text(_words(value)))
    return table


def _tensors(found: GgufFiles | Shards) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tensor", overflow="fold")
    for header in ("type", "shape"):
        table.add_column(header, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for entry in found.by_name.values():
        shape = " x ".join(map(str, entry.shape)) or "one"
        cells = (printable(entry.name), printable(entry.dtype), shape, size_words(entry.nbytes))
        table.add_row(*map(Text, cells))
    return table


def _words(value: Any) -> str:
    """A value in a few words: of an array its first elements, and how many it has."""
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}... ({len(value)} letters)"
    if not isinstance(value, np.ndarray | list):
        return str(value)
    first = ", ".join(_words(each) for each in value[:_ELEMENTS])
    return f"[{first}]" if len(value) <= _ELEMENTS else f"[{first}, ...] ({len(value)})"
