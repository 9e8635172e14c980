"""A GPU as a machine to be measured: events, graphs, and the ceilings of plain traffic."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

import planq
from harness.core.cases import MEGABYTE, Case
from harness.core.timing import QUICK, Effort, summarize
from harness.core.workload import Arena, Launch, Rate, Timing, copies_for, nearest_mix
from harness.native.native import ONE_PASS_FORMS, Native, RowPointers, StreamShape

INPUT_ARENA: Final = 4 << 30
OUTPUT_ARENA: Final = 3 << 30
PARAMETER_ARENA: Final = 256 << 20
TILE_SLACK: Final = 1 << 19  # bytes that the last tile of the streaming kernel may go further
MOST_STREAMED: Final = 3 << 30  # bytes in: more have the same rate, and no room
GRAPH_BELOW: Final = 200e-6  # seconds: longer launches need no graph, a few in a row fill a sample
GRAPH_SECONDS: Final = 0.6e-3
FEWEST_NODES, MOST_NODES = 20, 200

# Operations a second of 8-bit products, dense, for each multiprocessor: of the data sheets of A100,
# H100 and H200.
PEAKS: Final = {80: 624e12 / 108, 90: 1979e12 / 132}

# (unroll, threads, blocks for each multiprocessor; 0: as many as there are tiles)
STREAM_SHAPES: Final = (
    (1, 256, 0),
    (1, 512, 0),
    (1, 1024, 0),
    (2, 256, 0),
    (1, 128, 16),
    (1, 256, 8),
    (1, 512, 4),
    (2, 512, 4),
)


class CudaMachine:
    """The current CUDA device with a stream of its own."""

    distinct = 1 << 26
    large_bytes = 5_000_000_000

    def __init__(self, effort: Effort) -> None:
        if not torch.cuda.is_available():
            raise SystemExit("no CUDA device; --backend host measures the host")
        make_stream: Any = torch.cuda.Stream
        self.stream: Any = make_stream()
        torch.cuda.set_stream(self.stream)
        self.effort = effort
        self.device = planq.devices()[self.stream.device_index]
        self.cold_bytes = max(256_000_000, 2 * self.device.l2_bytes)
        self.native = Native(self.device.arch, self.stream.cuda_stream)
        self.inputs = Arena(INPUT_ARENA, "cuda")
        self.outputs = Arena(OUTPUT_ARENA, "cuda")
        self.parameters = Arena(PARAMETER_ARENA, "cuda")
        self._sink = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._rates: dict[tuple[object, ...], Rate] = {}
        self._bare: dict[tuple[object, ...], Timing | Rate | None] = {}

    # --- time -------------------------------------------------------------------------------------

    def measure(self, launches: Sequence[Launch], traffic: int, graphs: bool = True) -> Timing:
        """Times launches by events around a graph of them, or around a few in a row."""
        if not graphs:  # whoever ignores the current stream uses the default one
            default: Any = torch.cuda.default_stream()
            with torch.cuda.stream(default):
                return self._by_events(launches, self._estimate(launches))
        estimate = self._estimate(launches)
        if estimate >= GRAPH_BELOW:
            return self._by_events(launches, estimate)
        return self._by_graph(launches, estimate, len(launches) * traffic)

    def _by_events(self, launches: Sequence[Launch], estimate: float) -> Timing:
        count = max(len(launches), math.ceil(1e-3 / estimate))
        samples = self._sample(partial(_repeat, launches, count), estimate * count, cold=True)
        return summarize(samples, count, "events")

    def _estimate(self, launches: Sequence[Launch]) -> float:
        _repeat(launches, max(len(launches), 3))
        body = partial(_repeat, launches, 5)
        return min(self._events(body, 3, cold=True)) / 5

    def _by_graph(self, launches: Sequence[Launch], estimate: float, rotated: int) -> Timing:
        cold = rotated >= 2 * self.device.l2_bytes
        wanted = min(MOST_NODES, math.ceil(GRAPH_SECONDS / estimate))
        nodes = max(FEWEST_NODES, wanted, len(launches))
        if not cold:  # every node on memory of its own: what the eviction leaves is cold once
            nodes = len(launches)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        _repeat(launches, nodes)
        graph.capture_end()
        for _ in range(3):
            graph.replay()
        warm = min(self._events(graph.replay, 3, cold=True))
        samples = self._sample(graph.replay, warm, cold)
        graph.reset()
        return summarize(samples, nodes, "graph" if cold else "graph, evicted")

    def _sample(self, body: Callable[[], object], seconds: float, cold: bool) -> list[float]:
        return self._events(body, self.effort.samples(seconds), cold)

    def _events(self, body: Callable[[], object], samples: int, cold: bool) -> list[float]:
        pairs = [_event_pair() for _ in range(samples)]
        for begin, end in pairs:
            if not cold:
                self._evict()
            begin.record()
            body()
            end.record()
        torch.cuda.current_stream().synchronize()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]

    def _evict(self) -> None:
        # The far end of the arena, which small operands never reach.
        nbytes = 4 * self.device.l2_bytes
        end = self.inputs.bytes.data_ptr() + self.inputs.bytes.numel()
        self.native.evict((end - nbytes) & ~15, nbytes // 16, self._sink.data_ptr())

    def settle(self, seconds: float) -> None:
        """Keeps the device busy until its clocks have settled."""
        self.inputs.fill("bfloat16", self.distinct)
        vectors = 1 << 24
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(50):
                self._stream_launch(StreamShape(2, 1, 1, vectors // 512, 512), 0, vectors)()
            torch.cuda.current_stream().synchronize()

    # --- ceilings ---------------------------------------------------------------------------------

    def ceiling(self, reads: int, writes: int, streams: int = 1) -> Rate:
        """The best streaming kernel with the nearest mix and this total."""
        mix = nearest_mix(reads, writes)
        total = min(reads + writes, MOST_STREAMED * (reads + writes) // max(1, reads))
        key = ("stream", mix, streams, _size_class(total))
        if key not in self._rates:
            self._rates[key] = self._best_stream(mix, total, streams)
        return self._rates[key]

    def _best_stream(self, mix: tuple[int, int], nbytes: int, streams: int) -> Rate:
        units = max(1, nbytes // (16 * sum(mix)))
        traffic = 16 * units * sum(mix)
        together = mix[0] == 1 or streams == 1
        effort, self.effort = self.effort, QUICK
        found: dict[StreamShape, float] = {}
        for unroll, threads, per_multiprocessor in STREAM_SHAPES:
            tiles = -(-units // (unroll * threads))
            blocks = min(tiles, per_multiprocessor * self.device.multiprocessors or tiles)
            shape = StreamShape(*mix, unroll, blocks, threads, together)
            found[shape] = self.measure(self._stream_launches(shape, units), traffic).seconds
        self.effort = effort
        best = min(found, key=lambda shape: found[shape])
        timing = self.measure(self._stream_launches(best, units), traffic)
        what = f"read {mix[0]} : write {mix[1]}, {best.blocks} blocks of {best.threads}"
        what += f", unroll {best.unroll}" + ("" if together else ", arrays apart")
        return Rate(traffic / timing.seconds, timing.us, what)

    def _stream_launches(self, shape: StreamShape, units: int) -> list[Launch]:
        copies = copies_for(
            self, 16 * units * shape.reads + TILE_SLACK, 16 * units * shape.writes + TILE_SLACK
        )
        return [self._stream_launch(shape, copy, units) for copy in range(copies)]

    def _stream_launch(self, shape: StreamShape, copy: int, units: int) -> Launch:
        source = self.inputs.bytes.data_ptr() + copy * (16 * units * shape.reads + TILE_SLACK)
        target = self.outputs.bytes.data_ptr() + copy * (16 * units * shape.writes + TILE_SLACK)
        return partial(self.native.stream, shape, source, target, units)

    def copy(self, nbytes: int) -> Rate:
        """A device-to-device copy that reads and writes this many bytes together."""
        key = ("copy", _size_class(nbytes))
        if key not in self._rates:
            half = max(16, nbytes // 32 * 16)
            places = [slice(i * half, (i + 1) * half) for i in range(copies_for(self, half, half))]
            source, target = self.inputs.bytes, self.outputs.bytes
            launches = [partial(target[place].copy_, source[place]) for place in places]
            timing = self.measure(launches, 2 * half)
            self._rates[key] = Rate(2 * half / timing.seconds, timing.us, "device-to-device copy")
        return self._rates[key]

    # --- the bare kernels of the same formula -----------------------------------------------------

    def bare(self, case: Case) -> Timing | Rate | None:
        """What a dynamic quantization by rows is timed on, else plain traffic of exactly its size.

        The former is the bare one-pass kernel of the case's shape and codes, from bfloat16.
        """
        dynamic = case.descriptor.operator == "dynamic_range_quantize"
        key = (case.form, case.rows, case.columns) if dynamic else (case.input_bytes, case.traffic)
        if key not in self._bare:
            self._bare[key] = self._one_pass(case) if dynamic else self._plain(case)
        return self._bare[key]

    def _plain(self, case: Case) -> Rate:
        mix = nearest_mix(case.input_bytes, case.output_bytes)
        return self._best_stream(mix, case.traffic, len(case.elements))

    def _one_pass(self, case: Case) -> Timing | None:
        if case.columns % 8 or case.columns > 32768 or case.form not in ONE_PASS_FORMS:
            return None
        kernel = partial(self.native.one_pass, case.form)
        launches = self._row_launches(kernel, case.rows, case.columns)
        return self.measure(launches, case.rows * (3 * case.columns + 4))

    def two_pass(self, rows: int, columns: int) -> list[Launch]:
        """Launches of the plain two-pass kernel, bfloat16 to int8."""
        return self._row_launches(self.native.two_pass, rows, columns)

    def _row_launches(
        self, kernel: Callable[[RowPointers, int, int], None], rows: int, columns: int
    ) -> list[Launch]:
        self.inputs.release()
        self.outputs.release()
        self.inputs.fill("bfloat16", self.distinct)
        copies = copies_for(self, 2 * rows * columns, rows * (columns + 8))
        launches: list[Launch] = []
        for _ in range(copies):
            pointers = RowPointers(
                source=self.inputs.take((rows, columns), "bfloat16").data_ptr(),
                target=self.outputs.take((rows, columns), "int8").data_ptr(),
                scale=self.outputs.take((rows,), "float32").data_ptr(),
                zero_point=self.outputs.take((rows,), "int32").data_ptr(),
            )
            launches.append(partial(kernel, pointers, rows, columns))
        return launches

    def peak(self) -> float | None:
        """What the data sheet says, where it is known."""
        peak = PEAKS.get(self.device.arch)
        return None if peak is None else peak * self.device.multiprocessors

    # --- facts ------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """The device, its driver and its clocks as they are now."""
        return device_facts(self.device.index)


def device_facts(index: int) -> dict[str, Any]:
    """A device, its driver and its clocks as they are now."""
    fields = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "-i"]
    try:
        answer = subprocess.run(
            [*command, str(index)], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        answer = ""
    device = planq.devices()[index]
    values = [value.strip() for value in answer.split(",")]
    return {
        "name": device.name,
        "multiprocessors": device.multiprocessors,
        "l2_mb": device.l2_bytes / MEGABYTE,
        "torch_cuda": torch.version.cuda,
        **dict(zip(fields.split(","), values, strict=False)),
    }


def captured(call: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph by torch of what a function launches, and what it returned then.

    It is called three times before, aside, as torch asks for.
    """
    aside: Any = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call()
    return graph, made


def _repeat(launches: Sequence[Launch], count: int) -> None:
    for index in range(count):
        launches[index % len(launches)]()


def _event_pair() -> tuple[Any, Any]:
    event: Any = torch.cuda.Event
    return event(enable_timing=True), event(enable_timing=True)


def _size_class(nbytes: int) -> int:
    """Sizes that share a ceiling: within 3 %, and within 25 % where no target looks at it."""
    step = 1.03 if nbytes >= 20 * MEGABYTE else 1.25
    return round(math.log(nbytes) / math.log(step)) + (0 if step == 1.03 else 1_000_000)
