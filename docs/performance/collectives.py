"""The collectives in docs/performance.md: tables, loss curves, and a model of networks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drawing import Axis, Picture, frame, legend
from plots import microseconds
from records import HOST, Run
from tables import table

GROUP = 256
"""Elements that share a float32 parameter: the default of the collectives."""
WIDTHS = {"int8": 1.0, "int4": 0.5}
LARGEST = 28
"""The power of two of the elements that the model speaks of, and takes its figures from."""
# Nodes and the devices of each, and gigabytes a second that leave a GPU for other nodes.
MACHINES = ((2, 8), (8, 8), (32, 8), (64, 8), (64, 16))
NETWORKS = (12.5, 25.0, 50.0, 100.0)
EVERY = 25
"""Steps between two marks of a loss curve."""
HOOKS = {
    "none": "float32",
    "fp16": "torch, float16",
    "powersgd-1": "PowerSGD, rank 1",
    "powersgd-4": "PowerSGD, rank 4",
    "int8": "planq, int8",
    "int4": "planq, int4",
}
INTRODUCTION = """\
Ranks are processes with a GPU each, in one host. *Host* is the time until a call returns, *bound*
that of one that `bind` made, *kernels* planq's launches on the device without a transfer. *A call*
is what a program sees of one behind the other, the larger of host and device. Torch sends
bfloat16; × is a multiple of its time. **Bold** is more than wanted."""
MODEL = f"""\
*Between nodes*, nothing was measured; this is arithmetic with the figures above. A mesh has `N`
nodes of `D` GPUs; all reduce 2^{LARGEST} bfloat16 elements. Inside a node a GPU sends as fast as
torch's reduce-scatter above; the network carries the gigabytes a second of each GPU that the
column says, 12.5 being 100 Gbit/s. Torch sends each element between nodes once, `2n / D` bytes a
GPU, and overlaps that with what it sends inside perfectly: its time is the larger of the two.
planq's [two levels](distributed.md#two-levels) take kernels, then the node, then the network, with
no overlap at all. Cells are planq's time over torch's, below 1 where it pays; **bold** where it
does not."""


def section(runs: Sequence[Run], pictures: dict[str, Picture]) -> list[str]:
    """Everything about them; adds the picture."""
    timed = [run for run in runs if run.facts["collectives"]]
    if not timed:
        return []
    lines = ["## Collectives", "", *INTRODUCTION.splitlines(), ""]
    lines += table(
        ["machine", "ranks", "transport", "torch", "build of planq", "began (UTC)"],
        [_told(run) for run in runs],
    )
    for run in runs:
        if "note" in run.facts:
            lines += [*textwrap.fill(f"{run.machine}: {run.facts['note']}", 100).splitlines(), ""]
    for run in timed:
        lines += times(run.facts["collectives"])
        if "hooks" in run.facts:
            lines += [
                "*Hooks* of DistributedDataParallel, with one bucket of 25 MiB of float32:",
                "",
            ]
            lines += hooks(run.facts["hooks"])
    for run in runs:
        if "training" in run.facts:
            name = f"{run.folder}-training"
            entries, machine = run.facts["training"], run.facts["machine"]
            where = f"an {machine['processor']}" if machine["name"] == HOST else run.machine
            words = TRAINING.format(
                millions=entries[0]["parameters"] / 1e6, ranks=machine["ranks"], machine=where
            )
            pictures[name] = losses(entries)
            lines += [*textwrap.fill(words, 100).splitlines(), ""]
            lines += [f"![loss curves](images/{name}.svg)", "", *trainings(entries)]
    lines += [*MODEL.splitlines(), "", *networks(timed[0].facts["collectives"])]
    return lines


def _told(run: Run) -> list[str]:
    machine = run.facts["machine"]
    transport = run.facts["backend"]
    if "nccl" in machine:
        transport = f"NCCL {machine['nccl']}"
    torch = run.facts["software"]["torch"]
    return [run.machine, str(machine["ranks"]), transport, torch, f"`{run.build}`", run.date]


TRAINING = """\
*A small training*, `examples/ddp_training.py`: a transformer of {millions:.2g} million parameters
learns to guess the next byte of what Python's `help()` says, by {ranks} ranks ({machine}), from
the same first weights on the same text, whatever the hook. Hooks of planq and PowerSGD feed their
errors back."""


def times(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each collective, width and size."""
    rows = []
    for entry in entries:
        collective, kinds, size = entry["name"].split("/", 2)
        peer = entry["peers"]["torch_bf16"]
        missed = {each["measure"] for each in entry["targets"] if not each["met"]}
        cells = [
            _bold(microseconds(entry["host_us"]), "host_us" in missed),
            _bold(microseconds(entry["bound"]["host_us"]), "bound host_us" in missed),
            microseconds(entry["kernels"]["device_us"]),
            microseconds(entry["us"]),
            f"{microseconds(peer['host_us'])}, {microseconds(peer['us'])}",
            _bold(f"{entry['measures']['ratio']:.2f}", "us over torch's" in missed),
        ]
        rows.append([f"{collective} {size}".replace("_", "-"), kinds.split("_")[1], *cells])
    head = ["elements", "codes", "host µs", "bound µs", "kernels µs", "a call µs"]
    return table([*head, "torch: host, a call", "×"], rows)


def _bold(words: str, missed: bool) -> str:
    return f"**{words}**" if missed else words


def hooks(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each hook."""
    keys = ("host_us", "device_us", "us")
    rows = [[each["name"], *(microseconds(each[key]) for key in keys)] for each in entries]
    return table(["hook", "host µs", "device µs", "a call µs"], rows)


def trainings(entries: Sequence[dict[str, Any]]) -> list[str]:
    """How each ended."""
    rows = [
        [
            HOOKS[each["hook"]],
            f"{each['losses'][-1]:.4f}",
            f"{each['held_out']:.4f}",
            f"{each['ms']:.1f}",
        ]
        for each in entries
    ]
    steps = len(entries[0]["losses"])
    return table(
        ["gradients", f"loss of step {steps}", "of text held out", "ms a step"],
        rows,
    )


def losses(entries: Sequence[dict[str, Any]]) -> Picture:
    """The loss over steps, a mark for some of them, each the mean of those since the last."""
    picture = Picture(820, 400, "The loss of a small training, for each way that gradients travel")
    curves = {HOOKS[each["hook"]]: _means(each["losses"]) for each in entries}
    steps = len(entries[0]["losses"])
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values)
    x = Axis(0, steps, 70, 800, [(at, str(at)) for at in range(0, steps + 1, 2 * EVERY)])
    ticks = [(tenth / 2, f"{tenth / 2:g}") for tenth in range(13) if low <= tenth / 2 <= high]
    y = Axis(low - 0.05, high + 0.05, 320, 30, ticks)
    frame(picture, x, y, ("steps", "nats a byte"))
    for colour, (name, curve) in enumerate(curves.items()):
        for place, value in enumerate(curve):
            at = (place + 1) * EVERY
            words = f"{name}: {value:.4f} until step {at}"
            picture.mark(x.place(at), y.place(value), colour, words)
    legend(picture, curves, 80, 386)
    return picture


def _means(values: Sequence[float]) -> list[float]:
    parts = [values[first : first + EVERY] for first in range(0, len(values), EVERY)]
    return [sum(part) / len(part) for part in parts]


# --- The model of a network


@dataclass(frozen=True)
class Costs:
    """What a collective takes of ``n`` elements: microseconds, and bytes of a GPU a microsecond.

    Attributes:
        kernels: Of planq, on the device.
        inside: Bytes a microsecond inside of a node.
        width: Bytes of an element as a code, its part of a parameter among them.
        ways: 2 where everything is gathered as well.
    """

    kernels: float
    inside: float
    width: float
    ways: int

    def ours(self, n: int, nodes: int, devices: int, network: float) -> float:
        """Kernels, the node, the network, one after another."""
        inside, between = _bytes(n, nodes, devices, self.width * self.ways)
        return self.kernels + inside / self.inside + between / network

    def theirs(self, n: int, nodes: int, devices: int, network: float) -> float:
        """The node and the network at once, in bfloat16."""
        inside, between = _bytes(n, nodes, devices, 2.0 * self.ways)
        return max(inside / self.inside, between / network)


def _bytes(n: int, nodes: int, devices: int, width: float) -> tuple[float, float]:
    """That a GPU sends inside of its node, and to others."""
    inside = width * n * (devices - 1) / devices
    return inside, width * n / devices * (nodes - 1) / nodes


def costs(entries: Sequence[dict[str, Any]]) -> dict[str, Costs]:
    """Of each collective and width, from the largest tensor that was measured."""
    known = {entry["name"]: entry for entry in entries}
    scatter = known[f"reduce_scatter/bf16_int8/2^{LARGEST}"]
    ranks, n = scatter["ranks"], scatter["elements"]
    inside = 2.0 * n * (ranks - 1) / ranks / scatter["peers"]["torch_bf16"]["device_us"]
    return {
        f"{collective.replace('_', '-')}, {dtype}": Costs(
            known[f"{collective}/bf16_{dtype}/2^{LARGEST}"]["kernels"]["device_us"],
            inside,
            width + 4 / GROUP,
            ways,
        )
        for collective, ways in (("reduce_scatter", 1), ("all_reduce", 2))
        for dtype, width in WIDTHS.items()
    }


def networks(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Planq's time over torch's, for machines and networks."""
    rows, n = [], 1 << LARGEST
    for name, of in costs(entries).items():
        for nodes, devices in MACHINES:
            ratios = [
                of.ours(n, nodes, devices, network * 1e3)
                / of.theirs(n, nodes, devices, network * 1e3)
                for network in NETWORKS
            ]
            cells = [_bold(f"{ratio:.2f}", ratio >= 1) for ratio in ratios]
            rows.append([name, f"{nodes} × {devices}", str(nodes * devices), *cells])
    head = ["", "nodes × GPUs", "GPUs", *(f"{network:g} GB/s" for network in NETWORKS)]
    return table(head, rows)
