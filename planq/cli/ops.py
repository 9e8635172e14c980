"""``planq ops``: the operators in one screen, or the kernels of one of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import planq
from planq._nearest import did_you_mean
from planq.cli.failure import CommandError
from planq.cli.words import kernel_words, output_console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

_CLASS = re.compile(":class:`~?([^`]*)`")


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One operator; all, if left out.")
    ] = None,
    input_dtype: Annotated[
        str | None,
        typer.Option("--input", metavar="DTYPE", help="Only kernels of this first type."),
    ] = None,
    output_dtype: Annotated[
        str | None,
        typer.Option("--output", metavar="DTYPE", help="Only kernels with this type after it."),
    ] = None,
    backend: Annotated[
        planq.Backend | None, typer.Option(help="Only this backend's kernels.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="host|sm_80|sm_90|cuda:N", help="Only kernels that run there."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every SKU, one a line, and its kernels.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the operators, or what one of them takes and which kernels it has."""
    operators = _named(name)
    first = None if input_dtype is None else planq.DType.parse(input_dtype, "--input")
    later = None if output_dtype is None else planq.DType.parse(output_dtype, "--output")
    arch = None if device is None else _arch(device)

    def wanted(kernel: planq.KernelInfo) -> bool:
        runs = arch is None or (
            kernel.backend == "host" if arch == 0 else 0 < kernel.min_arch <= arch
        )
        return (
            runs
            and (backend is None or kernel.backend == backend)
            and (first is None or kernel.dtypes[:1] == (first,))
            and (later is None or later in kernel.dtypes[1:])
        )

    found = [(each, [kernel for kernel in each.kernels if wanted(kernel)]) for each in operators]
    if as_json:
        print(json.dumps([_operator_dict(each, kernels) for each, kernels in found], indent=2))
        return
    console = output_console()
    if every:
        _show_every(console, found)
    elif name is None:
        _show_operators(console, found)
    else:
        _show_operator(console, *found[0])


def _named(name: str | None) -> tuple[planq.OperatorInfo, ...]:
    operators = planq.operators()
    if name is None:
        return operators
    chosen = tuple(operator for operator in operators if operator.name == name)
    if not chosen:
        hint = did_you_mean(name, (operator.name for operator in operators))
        raise CommandError(f"no operator {name!r}{hint or '; planq ops lists them'}")
    return chosen


def _arch(device: str) -> int:
    """The compute capability (90 for sm_90) of a device's name; 0 for the host."""
    some = planq.MinMaxDescriptor(shape=(1, 1), input_dtype="float32")
    planq.explain(some, device=device)  # raises for unknown names
    if device == "host":
        return 0
    if device.startswith("sm_"):
        return int(device[3:])
    return next(each.arch for each in planq.devices() if device == f"cuda:{each.index}")


def _show_operators(
    console: Console, found: Iterable[tuple[planq.OperatorInfo, list[planq.KernelInfo]]]
) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operator", no_wrap=True)
    table.add_column("what it does", overflow="ellipsis", no_wrap=True)
    for header in planq.Backend:
        table.add_column(header.value, justify="right", no_wrap=True)
    for operator, kernels in found:
        if not kernels:
            continue
        counts = [
            len({kernel.sku for kernel in kernels if kernel.backend == each})
            for each in planq.Backend
        ]
        cells = (operator.name, _summary(operator), *map(str, counts))
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text("planq ops NAME shows one; its SKUs stand under host and cuda"))


def _show_operator(
    console: Console, operator: planq.OperatorInfo, kernels: list[planq.KernelInfo]
) -> None:
    console.print(Text(f"{operator.name}: {_summary(operator)}", style="bold"))
    console.print(Text(f"operands: {', '.join(operator.operands)}"))
    console.print(Text(f"descriptor: {', '.join(operator.fields)}"))
    groups: dict[str, list[planq.KernelInfo]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.sku.rpartition("/")[0] if kernel.dtypes else kernel.sku].append(kernel)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("SKUs", no_wrap=True)
    for header in ("bodies", "from", "inputs", "others", "guarantee"):
        table.add_column(header, overflow="fold")
    for prefix, rows in groups.items():
        first = sorted({row.dtypes[0].value for row in rows if row.dtypes})
        later = sorted({dtype.value for row in rows for dtype in row.dtypes[1:]})
        promises = sorted({kernel_words(row.guarantee) for row in rows})
        bodies = " ".join(dict.fromkeys(row.body for row in rows))
        earliest = _from(min(rows, key=lambda row: row.min_arch))
        cells = (prefix, bodies, earliest, *map(" ".join, (first, later)), "; ".join(promises))
        table.add_row(*map(Text, cells))
    console.print(table)
    note = (
        f"{len(_by_sku(kernels))} SKUs, {len(kernels)} kernels; --all lists them, "
        "planq explain says which one is chosen"
    )
    console.print(Text(note))


def _summary(operator: planq.OperatorInfo) -> str:
    """The first line of the operator's docstring, without reST markup of classes."""
    return _CLASS.sub(r"\1", operator.summary)


def _from(kernel: planq.KernelInfo) -> str:
    return f"sm_{kernel.min_arch}" if kernel.backend == planq.Backend.CUDA.value else ""


def _show_every(
    console: Console, found: Iterable[tuple[planq.OperatorInfo, list[planq.KernelInfo]]]
) -> None:
    for operator, kernels in found:
        console.print(Text(f"{operator.name}: {_summary(operator)}", style="bold"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("SKU", no_wrap=True)
        table.add_column("revision", justify="right")
        table.add_column("guarantee")
        table.add_column("bodies", overflow="fold")
        for sku, bodies in _by_sku(kernels).items():
            words = kernel_words(bodies[0].guarantee)
            names = " ".join(each.body for each in bodies)
            table.add_row(*map(Text, (sku, str(bodies[0].revision), words, names)))
        console.print(table)


def _by_sku(kernels: Iterable[planq.KernelInfo]) -> dict[str, list[planq.KernelInfo]]:
    """The kernels (bodies) of each SKU, the preferred ones first."""
    found: dict[str, list[planq.KernelInfo]] = defaultdict(list)
    for kernel in kernels:
        found[kernel.sku].append(kernel)
    return found


def _operator_dict(
    operator: planq.OperatorInfo, kernels: Iterable[planq.KernelInfo]
) -> dict[str, Any]:
    return {
        "name": operator.name,
        "summary": operator.summary,
        "operands": list(operator.operands),
        "fields": list(operator.fields),
        "kernels": [
            {
                "sku": kernel.sku,
                "body": kernel.body,
                "revision": kernel.revision,
                "backend": kernel.backend,
                "min_arch": kernel.min_arch,
                "rank": kernel.rank,
                "guarantee": kernel.guarantee.to_dict(),
            }
            for kernel in kernels
        ],
    }
