"""Measures a step of a decoder layer in W8A8 as one CUDA graph: its time, launches and gaps.

    python3 benchmarks/decode.py [--tokens 1,16,128] [--peers] [--json PATH] [--quick]
        [--backend host --small]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

import planq
from harness.core.cuda import device_facts
from harness.core.report import begun, folder_of
from harness.native.native import processor_name
from harness.peers import layer_peers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import decode_layer

LAYERS: Final = 8  # steps of a graph, as a network has layers
SAMPLES, QUICK_SAMPLES = 50, 5
SETTLED: Final = 0.3  # seconds of every graph before it is timed, so that clocks are steady

Launches = Sequence[Callable[[], object]]


class Gpu:
    """Times graphs by events, and asks torch's profiler for the kernels of one."""

    device = "cuda"

    def __init__(self, samples: int) -> None:
        self.samples = samples
        make_stream: Any = torch.cuda.Stream
        torch.cuda.set_stream(make_stream())
        self.name = planq.devices()[torch.cuda.current_device()].name

    def stream(self) -> Any:
        return torch.cuda.current_stream()

    def facts(self) -> dict[str, Any]:
        return device_facts(torch.cuda.current_device())

    def graph(self, launches: Launches) -> Any:
        """One of these launches, as often as a network has layers."""
        run_all(launches)  # what compiles at its first call does so before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream()):
            for _ in range(LAYERS):
                run_all(launches)
        return graph

    def seconds(self, launches: Launches) -> list[float]:
        """Of the launches once, sample by sample."""
        graph, event, pairs = self.graph(launches), torch.cuda.Event, []
        end = time.monotonic() + (SETTLED if self.samples == SAMPLES else 0.0)
        while time.monotonic() < end:
            graph.replay()
            self.stream().synchronize()
        for _ in range(self.samples):
            begin, after = event(enable_timing=True), event(enable_timing=True)
            graph.replay()  # so that the GPU is busy while the next one is enqueued
            begin.record()
            graph.replay()
            after.record()
            pairs.append((begin, after))
        self.stream().synchronize()
        return [begin.elapsed_time(after) * 1e-3 / LAYERS for begin, after in pairs]

    def kernels(self, launches: Launches) -> list[tuple[str, float, float]]:
        """Name, begin and end of every kernel of a graph, in microseconds and by its begin."""
        graph = self.graph(launches)
        graph.replay()
        self.stream().synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            graph.replay()
            self.stream().synchronize()
        kind = torch.autograd.DeviceType.CUDA
        spans = [
            (event.name, float(event.time_range.start), float(event.time_range.end))
            for event in found.events() or ()
            if event.device_type == kind
        ]
        return sorted(spans, key=lambda span: span[1])


class Host:
    """Times calls by the clock; there is nothing between launches to look at."""

    device = "cpu"
    name = "host"

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def stream(self) -> Any:
        return planq.HOST

    def facts(self) -> dict[str, Any]:
        return {"name": "host", "processor": processor_name()}

    def seconds(self, launches: Launches) -> list[float]:
        found = []
        for _ in range(self.samples):
            begin = time.perf_counter()
            run_all(launches)
            found.append(time.perf_counter() - begin)
        return found

    def kernels(self, launches: Launches) -> list[tuple[str, float, float]]:
        return []


def run_all(launches: Launches) -> None:
    for launch in launches:
        launch()


def parts_of(layer: decode_layer.Layer, rows: int, stream: Callable[[], Any]) -> dict[str, Any]:
    """Launches of the whole step but for attention, and of parts of it by themselves."""
    at = layer.arena.first(rows)
    products = {
        "qkv": ("hidden codes", "qkv"),
        "o": ("heads codes", "hidden"),
        "gate_up": ("hidden codes", "gate_up"),
        "down": ("inner codes", "hidden"),
    }
    parts = {
        "step": [*layer.before_attention(rows), *layer.after_attention(rows)],
        "products": [layer.product(at, name, *ends) for name, ends in products.items()],
        "norm": layer.normed(at, "attention.norm"),
        "gate": layer.gated(at),
    }
    return {name: [partial(on, launch, stream) for launch in part] for name, part in parts.items()}


def on(launch: Any, stream: Callable[[], Any]) -> None:
    launch(stream())


def peers_of(layer: decode_layer.Layer, rows: int) -> dict[str, dict[str, Any]]:
    """Of the norm and of the gate, each with the codes of its tokens: one kernel of a peer."""
    at = layer.arena.first(rows)
    norm = {
        "input": at["hidden"],
        "residual": at["residual"],
        "weight": layer.weights["attention.norm"],
        "eps": decode_layer.EPSILON,
    }
    found: dict[str, dict[str, Any]] = {}
    for part, given in (("norm", norm), ("gate", {"input": at["gate_up"]})):
        desc = layer.plans[part].descriptor
        found[part] = {"vllm_compiled": partial(layer_peers.compiled(desc, "int8"), given)}
        if (kernels := layer_peers.triton_kernels()) is not None:
            found[part]["triton"] = partial(kernels.of_triton(desc, "int8"), given)
    return found


def measure(
    machine: Gpu | Host, layer: decode_layer.Layer, rows: int, peers: bool
) -> dict[str, Any]:
    """An entry of the record."""
    digest = written(layer, rows, machine.stream)
    parts = parts_of(layer, rows, machine.stream)
    times = {name: machine.seconds(launches) for name, launches in parts.items()}
    step = statistics.median(times["step"])
    weights = sum(tensor.nbytes for tensor in layer.weights.values())
    entry: dict[str, Any] = {
        "name": f"{'fused' if layer.fused else 'unfused'}/{rows}x{layer.sizes.hidden}",
        "tokens": rows,
        **figures(times["step"]),
        "launches": len(parts["step"]),
        "digest": digest,
        "gbps": round(weights / step / 1e9, 1),
        "beside_products_us": round((step - statistics.median(times["products"])) * 1e6, 3),
        "parts": {name: figures(found) for name, found in times.items() if name != "step"},
        **gaps(machine.kernels(parts["step"])),
    }
    if peers:
        entry["peers"] = {
            part: {name: figures(machine.seconds([call])) for name, call in calls.items()}
            for part, calls in peers_of(layer, rows).items()
        }
    return entry


def written(layer: decode_layer.Layer, rows: int, stream: Callable[[], Any]) -> str:
    """The digest of what a step makes of its first tokens."""
    fill(layer, rows)
    run_all(parts_of(layer, rows, stream)["step"])
    at = layer.arena.first(rows)
    return decode_layer.digest_of(at[name].cpu() for name in ("hidden", "residual"))


def fill(layer: decode_layer.Layer, rows: int) -> None:
    """Hidden states, positions and slots of tokens at the beginning of their sequences."""
    tokens, at = decode_layer.tokens_of(replace(layer.sizes, tokens=rows)), layer.arena.first(rows)
    at["hidden"].copy_(tokens.hidden)
    at["residual"].copy_(tokens.residual)
    at["heads"].copy_(tokens.hidden[:, : at["heads"].shape[1]])
    at["position"].zero_()
    at["slot"].copy_(torch.arange(rows) * layer.sizes.page)


def figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "us": round(statistics.median(ordered) * 1e6, 3),
        "us_p10": round(ordered[len(ordered) // 10] * 1e6, 3),
        "us_p90": round(ordered[len(ordered) * 9 // 10] * 1e6, 3),
    }


def gaps(kernels: list[tuple[str, float, float]]) -> dict[str, Any]:
    """Kernels of a step, and how long none of them runs; nothing where no kernel was seen.

    Kernels may overlap, where one begins as the one before it drains.
    """
    if not kernels:
        return {}
    idle, until, busy = 0.0, kernels[0][1], dict.fromkeys((name for name, _, _ in kernels), 0.0)
    for name, begin, end in kernels:
        idle += max(0.0, begin - until)
        until = max(until, end)
        busy[name] += end - begin
    return {
        "kernels": round(len(kernels) / LAYERS, 2),
        "gaps_us": round(idle / LAYERS, 3),
        "kernels_us": {name[:120]: round(us / LAYERS, 3) for name, us in busy.items()},
    }


def line(entry: dict[str, Any]) -> str:
    """The row of the table."""
    parts = [entry["parts"][name]["us"] for name in ("products", "norm", "gate")]
    numbers = [entry["us"], entry["beside_products_us"], *parts]
    seen = [str(entry.get(key, "")) for key in ("kernels", "gaps_us")]
    cells = " ".join(f"{number:>9.2f}" for number in numbers)
    told = f"{entry['name']:<24} {cells} {entry['launches']:>8} {seen[0]:>8} {seen[1]:>8}"
    for part, calls in entry.get("peers", {}).items():
        told += "".join(f"  {part} {name} {found['us']:.2f}" for name, found in calls.items())
    return (told + ("" if entry["right"] else "  OTHER BITS than the host's")).rstrip()


def write(path: Path, machine: Gpu | Host, sizes: decode_layer.Sizes, entries: list[Any]) -> None:
    """One JSON file, or into a folder ``<gpu>/decode.json``."""
    if path.suffix != ".json":
        path = path / folder_of(machine.name) / "decode.json"
    content = {
        **begun(sys.argv[1:], machine.facts()),
        "sizes": {name: getattr(sizes, name) for name in ("hidden", "heads", "inner")},
        "steps": entries,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a step of a decoder layer.")
    parser.add_argument("--backend", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--tokens", default="1,16,128", help="of a step, by default 1,16,128")
    parser.add_argument("--small", action="store_true", help="a layer that a host runs quickly")
    parser.add_argument("--peers", action="store_true", help="compiled and Triton's norm and gate")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="a .json file, or a folder for <gpu>/decode.json"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    samples = QUICK_SAMPLES if arguments.quick else SAMPLES
    machine = Host(samples) if arguments.backend == "host" else Gpu(samples)
    counts = [int(word) for word in arguments.tokens.split(",")]
    sizes = decode_layer.SMALL if arguments.small else decode_layer.Sizes()
    sizes = replace(sizes, tokens=max(counts))
    layers = [decode_layer.Layer(sizes, machine.device, fused) for fused in (False, True)]
    print(f"{machine.name}: a step of a layer in W8A8 without attention, us")
    heads = ("step", "beside", "products", "norm", "gate")
    seen = ("launches", "kernels", "gaps")
    print(f"{'':<24}", *[f"{head:>9}" for head in heads], *[f"{head:>8}" for head in seen])
    host, entries = decode_layer.Layer(sizes, "cpu"), []
    for rows in counts:
        expected = written(host, rows, lambda: planq.HOST)
        for layer in layers:
            entry = measure(machine, layer, rows, arguments.peers and layer.fused)
            entries.append({**entry, "right": entry["digest"] == expected})
            print(line(entries[-1]), flush=True)
    if arguments.json:
        write(arguments.json, machine, sizes, entries)
    return 0 if all(entry["right"] for entry in entries) else 1


if __name__ == "__main__":
    raise SystemExit(main())
