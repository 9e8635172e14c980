"""The tables of docs/performance.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from plots import PEERS, microseconds
from records import Case, Results, Run

# Upper bounds of what a case moves, in megabytes; the targets of the cases change at the same.
SIZES = (
    (2.0, "below 2 MB"),
    (20.0, "2 to 20 MB"),
    (200.0, "20 to 200 MB"),
    (None, "200 MB and more"),
)
# Why targets are missed: the measure, a pattern of the GPU and the case, a reason. Others are not
# explained.
REASONS = (
    ("ceiling", "16_stochastic/", "it waits for its random numbers"),
    ("floor", "H200 A3/tensor/.*/4096x4096", "such a kernel without any arithmetic reaches 1.26"),
    ("ceiling", "_quantize/.*_nested/", "the blocks' statistics take one or two launches more"),
    ("ceiling", "_quantize/given-256/", "each block of threads makes the buckets of the map"),
    ("bitsandbytes", "_quantize/nf4-(128|256)/", "bitsandbytes is faster than in blocks of 64"),
)
NOTHING = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown without columns that say nothing, and an empty line behind.

    Nothing where there are no rows.
    """
    rows = list(rows)
    if not rows:
        return []
    columns = [column for column in zip(head, *rows, strict=True) if {*column[1:]} - {NOTHING, ""}]
    lines = [list(cells) for cells in zip(*columns, strict=True)]
    lines.insert(1, ["---"] * len(columns))
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def span(values: Iterable[float], words: Callable[[float], str], unit: str) -> str:
    """The smallest and the largest, or both in one; a dash where there is none."""
    found = sorted(values)
    if not found:
        return NOTHING
    ends = dict.fromkeys((words(found[0]), words(found[-1])))
    return f"{' to '.join(ends)} {unit}"


def percent(value: float) -> str:
    """With one digit behind the point."""
    return f"{100 * value:.1f}"


def by_kind(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """The cases that differ in nothing but their shape."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.kind, []).append(case)
    return found


def letters(runs: Iterable[Run | None]) -> str:
    """The letters of runs."""
    return ", ".join(ordered({run.letter for run in runs if run is not None}))


def ordered(letters: Iterable[str]) -> list[str]:
    """Letters of runs from the newest on: behind z comes aa."""
    return sorted(letters, key=lambda letter: (len(letter), letter))


def runs(found: Results) -> list[str]:
    """Which run a letter stands for."""
    return table(
        ["run", "began (UTC)", "build of planq", "machine", "peers", "case twice", "records"],
        (
            [
                run.letter,
                run.date,
                f"`{run.build}`",
                run.machine,
                run.peers,
                NOTHING if run.noise is None else f"{run.noise:.1%} apart".replace("%", " %"),
                ", ".join(map(record, run.files)),
            ]
            for run in found.runs
        ),
    )


def record(path: Path) -> str:
    """A link to a record."""
    return f"[{path.stem}](../benchmarks/results/{path.parent.name}/{path.name})"


def verdicts(cases: Sequence[Case]) -> list[str]:
    """How many targets are met, for each id."""
    rows = []
    for name in dict.fromkeys(case.id for case in cases):
        inside = [case for case in cases if case.id == name]
        met = [target["met"] for case in inside for target, _ in case.verdicts]
        operators = ", ".join(f"`{name}`" for name in dict.fromkeys(c.operator for c in inside))
        rows.append([name, operators, str(len(inside)), str(len(met)), str(sum(met))])
    return table(["cases", "operators", "number", "targets", "met"], rows)


def fractions(cases: Sequence[Case]) -> list[str]:
    """The largest case of each kind, and the fraction of the ceiling by size."""
    rows = []
    for kind, inside in by_kind(cases).items():
        largest = max(inside, key=lambda case: case.megabytes)
        cells, low = [], 0.0
        for high, _ in SIZES:
            fits = [c for c in inside if low <= c.megabytes < (high or float("inf"))]
            cells.append(span(_known(fits), percent, "%"))
            low = high or low
        several = " (all reads)" if any(case.rereads for case in inside) else ""
        us, rate = microseconds(largest.entry["us"]), f"{largest.entry['gbps']:.0f}"
        where = letters(case.run for case in inside)
        rows.append([f"`{kind}`{several}", where, largest.shape, us, rate, *cells])
    head = ["case", "run", "largest shape", "µs", "GB/s", *(name for _, name in SIZES)]
    return table(head, rows)


def _known(cases: Iterable[Case]) -> list[float]:
    return [case.fraction for case in cases if case.fraction is not None]


def products(cases: Sequence[Case]) -> list[str]:
    """The time and the rate of every product, by rows, and how near its floor each is."""
    counts = sorted({case.problem[0] for case in cases})
    head = [f"m = {count}" for count in counts]
    rows, floors = [], []
    for kind, inside in by_kind(cases).items():
        where = letters(case.run for case in inside)
        layers = sorted({case.problem[1:] for case in inside})
        for n, k in layers:
            found = {case.problem[0]: case for case in inside if case.problem[1:] == (n, k)}
            cells = [_time_and_rate(found[m]) if m in found else NOTHING for m in counts]
            rows.append([f"`{kind}`", where, f"{n} × {k}", *cells])
        shares = [
            span(_known(c for c in inside if c.problem[0] == m), percent, "%") for m in counts
        ]
        if {*shares} != {NOTHING}:
            floors.append([f"`{kind}`", where, *shares])
    lines = ["Microseconds, and 10^12 operations a second:", ""]
    lines += table(["case", "run", "n × k", *head], rows)
    if floors:
        lines += ["The floor over the time:", "", *table(["case", "run", *head], floors)]
    return lines


def _time_and_rate(case: Case) -> str:
    rate = f"{case.tops:.0f}" if case.tops >= 100 else f"{case.tops:.3g}"
    return f"{microseconds(case.entry['us'])} ({rate})"


def peers(cases: Sequence[Case]) -> list[str]:
    """How many times as fast as each peer, for each kind that has any."""
    compared = [case for case in cases if case.speedups]
    names = [name for name in PEERS if any(name in case.speedups for case in compared)]
    rows = []
    for kind, inside in by_kind(compared).items():
        cells = [
            span([c.speedups[n] for c in inside if n in c.speedups], "{:.2f}".format, "×")
            for n in names
        ]
        where = letters(case.beside_run for case in inside)
        rows.append([f"`{kind}`", where, str(len(inside)), *cells])
    return table(["case", "run", "shapes", *(PEERS[name] for name in names)], rows)


def small(cases: Sequence[Case]) -> list[str]:
    """Microseconds by the number of rows, at the fewest and the most columns."""
    rows = []
    counts = sorted({case.extents[0] for case in cases})
    for kind, inside in by_kind(cases).items():
        widths = sorted({case.extents[1] for case in inside})
        for width in dict.fromkeys((widths[0], widths[-1])):
            us = {
                case.extents[0]: microseconds(case.entry["us"])
                for case in inside
                if case.extents[1] == width
            }
            bare = [
                case.entry["measures"]["bare"]
                for case in inside
                if case.extents[1] == width and "bare" in case.entry["measures"]
            ]
            cells = [us.get(count, NOTHING) for count in counts]
            where = letters(case.run for case in inside)
            last = span(bare, "{:.2f}".format, "×")
            rows.append([f"`{kind}`", where, str(width), *cells, last])
    head = ["case", "run", "columns", *(f"{n} row{'s' * (n > 1)}" for n in counts), "over bare"]
    return table(head, rows)


def flat(cases: Sequence[Case]) -> list[str]:
    """Microseconds of short cases whose shape is one number."""
    return table(
        ["case", "run", "elements", "µs", "over bare"],
        (
            [
                f"`{case.kind}`",
                case.run.letter,
                case.shape,
                microseconds(case.entry["us"]),
                span([case.entry["measures"].get("bare")], "{:.2f}".format, "×")
                if "bare" in case.entry["measures"]
                else NOTHING,
            ]
            for case in cases
        ),
    )


def misses(cases: Sequence[Case]) -> list[str]:
    """Every target that is not met."""
    rows = []
    for miss in (miss for case in cases for miss in case.misses):
        why = [
            reason
            for measure, pattern, reason in REASONS
            if measure == miss.measure and re.search(pattern, f"{miss.run.device} {miss.case.name}")
        ]
        what = PEERS.get(miss.measure, miss.measure)
        wanted = miss.wanted.replace(">=", "≥").replace("<=", "≤")
        found = f"{miss.value:.3f}"
        rows.append([f"`{miss.case.name}`", miss.run.letter, what, wanted, found, " ".join(why)])
    return table(["case", "run", "measure", "wanted", "found", "why"], rows)


def overheads(runs: Sequence[Run]) -> list[str]:
    """The host's share of a call, a column for each record."""
    lines = table(
        ["run", "began (UTC)", "build of planq", "machine", "torch", "record"],
        (
            [
                run.letter,
                run.date,
                f"`{run.build}`",
                run.machine,
                run.facts["software"]["torch"],
                ", ".join(map(record, run.files)),
            ]
            for run in runs
        ),
    )
    figures = [{figure["name"]: figure for figure in run.facts["figures"]} for run in runs]
    names = dict.fromkeys(name for found in figures for name in found)
    rows = []
    for name in names:
        cells, bounds = [], []
        for found in figures:
            figure = found.get(name)
            cells.append(NOTHING if figure is None else _overhead(figure))
            if figure is not None and figure["at_most"] is not None:
                bounds.append(f"{figure['at_most']:g}{_sign(figure)}")
        rows.append([name, *cells, bounds[0] if bounds else NOTHING])
    return lines + table(["µs", *(run.letter for run in runs), "at most wanted"], rows)


def _sign(figure: dict[str, object]) -> str:
    return "" if figure["value"] in (None, figure["us"]) else " ×"


def _overhead(figure: dict[str, object]) -> str:
    value = figure["us"] if figure["value"] is None else figure["value"]
    assert isinstance(value, float)
    words = f"{value:.{2 if value >= 2 else 3}f}{_sign(figure)}"
    return f"**{words}**" if figure["met"] is False else words
