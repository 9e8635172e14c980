"""MiniLM's encoder beside torch, in docs/performance.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from plots import microseconds
from records import Run
from tables import table

INTRODUCTION = """\
MiniLM as [examples/networks/minilm.py](../examples/networks/minilm.py) computes it, a network of
plans alone, and as torch does: sentences a second. On the host each begins with tokens and ends
with unit vectors. On a GPU each is a CUDA graph, whose replays are timed. planq computes the
tokens that there are, and torch pads sentences to the longest. Turns of all alternate, and the
best of each counts."""


def section(runs: Sequence[Run]) -> list[str]:
    """The newest run on each machine."""
    newest: dict[str, Run] = {}
    for run in runs:
        newest.setdefault(run.facts["machine"].get("processor", run.device), run)
    lines = ["## A sentence encoder beside torch", ""] if newest else []
    for name, run in newest.items():
        entries = run.facts["encoder"]
        told = f"On an {name}, torch {run.facts['software']['torch']}. "
        told += f"Build `{run.build}` of planq, {run.date}."
        told += f" {run.facts['note']}" if "note" in run.facts else ""
        contenders = list(entries[0]["sentences_per_second"])
        lines += [*textwrap.wrap(told, 100), "", *INTRODUCTION.splitlines(), ""]
        lines += table(
            ["sentences", "tokens", "threads", *contenders],
            [_row(entry, contenders) for entry in entries],
        )
    return lines


def _row(entry: dict[str, Any], contenders: Sequence[str]) -> list[str]:
    rates = entry["sentences_per_second"]
    return [
        str(entry["sentences"]),
        str(entry["tokens"]),
        str(entry["threads"] or ""),
        *(f"{rates[name]:.1f} ({microseconds(entry['us'][name])} µs)" for name in contenders),
    ]
