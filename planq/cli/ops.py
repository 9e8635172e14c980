"""``planq ops``: the operator matrix, as the registry has it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import planq
from planq.cli.words import guarantee_words, output_console


def ops(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every operator and its kernels, with what each kernel promises."""
    operators = planq.operators()
    if as_json:
        print(json.dumps([_operator_dict(operator) for operator in operators], indent=2))
        return
    console = output_console()
    for operator in operators:
        console.print(Text(f"{operator.name}: {operator.summary}", style="bold"))
        console.print(Text(f"operands: {', '.join(operator.operands)}"))
        console.print(Text(f"descriptor: {', '.join(operator.fields)}"))
        console.print(_kernel_table(operator.kernels))


def _kernel_table(kernels: tuple[planq.KernelInfo, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("SKU", no_wrap=True)
    for header in ("revision", "rank"):
        table.add_column(header, justify="right")
    for header in ("backend", "from", "guarantee"):
        table.add_column(header)
    for kernel in kernels:
        table.add_row(
            kernel.sku,
            str(kernel.revision),
            str(kernel.rank),
            kernel.backend,
            f"sm_{kernel.min_arch}" if kernel.backend == planq.Backend.CUDA.value else "",
            guarantee_words(kernel.guarantee),
        )
    return table


def _operator_dict(operator: planq.OperatorInfo) -> dict[str, Any]:
    return {
        "name": operator.name,
        "summary": operator.summary,
        "operands": list(operator.operands),
        "fields": list(operator.fields),
        "kernels": [
            {
                "sku": kernel.sku,
                "revision": kernel.revision,
                "backend": kernel.backend,
                "min_arch": kernel.min_arch,
                "rank": kernel.rank,
                "guarantee": kernel.guarantee.to_dict(),
            }
            for kernel in operator.kernels
        ],
    }
