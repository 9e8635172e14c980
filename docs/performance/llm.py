"""Gemma 3 beside transformers, and what promises cost, in docs/performance.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from plots import microseconds
from records import Run
from tables import table

INTRODUCTION = """\
Gemma 3 as [planq.networks](networks.md) computes it, of the weights as they are in the file, and as
transformers does, of the same weights in bfloat16: tokens a second. A step makes one token of each
text; the host learns every token, while the next step runs. A prompt ends when the host knows its
first token. *drawn* has temperature, top-k and top-p instead of the likeliest token. transformers
has a static cache; its columns are modes of torch. Turns of all alternate, and the best of each
counts. × is the time of the fastest mode over planq's; below 1 is **bold**."""
NOTHING_ELSE = """\
*What the promise costs*: every kernel of the network that planq has for this device is `BIT_EXACT`
and batch-invariant. With a preference that asks for less, each plan is the same, so the difference
is 0 %."""
SOMETHING_ELSE = """\
*What the promise costs*: with a preference that asks for `RUN_TO_RUN` alone, {count} of the plans
have another kernel. *promise* is how much longer a step takes with every bit promised, in percent
of a step without."""
ALONE = "transformers was not installed, so planq is measured alone."


def section(runs: Sequence[Run]) -> list[str]:
    """The runs of the newest build that each machine has run."""
    machines: dict[str, list[Run]] = {}
    for run in runs:
        of_machine = machines.setdefault(run.facts["machine"].get("processor", run.device), [])
        if not of_machine or of_machine[0].build == run.build:
            of_machine.append(run)
    if not machines:
        return []
    lines = ["## A language model beside transformers", "", *INTRODUCTION.splitlines(), ""]
    for name, of_machine in machines.items():
        for run in reversed(of_machine):
            lines += _measured(name, run)
        # Runs of one build on one machine have the same plans.
        lines += [*_promise(of_machine[0].facts["llm"]["other_plans"]), ""]
    return lines


def _measured(machine: str, run: Run) -> list[str]:
    """One run: what it was of, and its figures."""
    found, versions = run.facts["llm"], run.facts["software"]
    entries = found["entries"]
    contenders = list(dict.fromkeys(name for each in entries for name in each["us"]))
    heads = ["", *contenders, "×"]
    rows = [_row(each, contenders) for each in entries]
    if found["other_plans"]:
        heads.append("promise")
        for row, each in zip(rows, entries, strict=True):
            row.append(f"{each['promise_costs']:.1f} %")
    lines = [*textwrap.wrap(_told(machine, run), 100), "", *table(heads, rows)]
    lines += _failures(found["failed"])
    if versions["transformers"] == "none":
        lines += [ALONE, ""]
    return lines


def _told(name: str, run: Run) -> str:
    """What a run was of."""
    versions, cosine = run.facts["software"], run.facts["llm"]["logits_cosine"]
    told = f"On an {name}, torch {versions['torch']}"
    if versions["transformers"] != "none":
        told += f", transformers {versions['transformers']}"
    model = run.facts["model"]
    drawn = "a model of random weights with the shapes and types of Gemma 3 270M in Q4_K_M"
    told += f": {drawn if model == 'drawn' else model}. Build `{run.build}` of planq, {run.date}."
    if cosine is not None:
        told += f" The cosine of both logits behind a prompt is {cosine:.5f}."
    return told + (f" {run.facts['note']}" if "note" in run.facts else "")


def _row(entry: dict[str, Any], contenders: Sequence[str]) -> list[str]:
    if entry["part"] == "prompt":
        what = f"a prompt of {entry['tokens']}"
    else:
        texts = "1 text" if entry["texts"] == 1 else f"{entry['texts']} texts"
        what = f"{texts}, {entry['written']} tokens after {entry['context']}"
    times = f"{entry['speedup']:.2f}" if "speedup" in entry else ""
    return [
        what,
        *(_rate(entry, name) for name in contenders),
        f"**{times}**" if times and entry["speedup"] < 1 else times,
    ]


def _rate(entry: dict[str, Any], name: str) -> str:
    if name not in entry["us"]:
        return ""
    return f"{entry['tokens_per_second'][name]:.0f} ({microseconds(entry['us'][name])} µs)"


def _promise(others: Sequence[Any]) -> list[str]:
    if not others:
        return NOTHING_ELSE.splitlines()
    return SOMETHING_ELSE.format(count=len(others)).splitlines()


def _failures(failed: dict[str, str]) -> Iterator[str]:
    """Which modes did not work."""
    if failed:
        names = "; ".join(f"{name} ({reason})" for name, reason in failed.items())
        yield from [*textwrap.wrap(f"Not measured, as they failed: {names}.", 100), ""]
