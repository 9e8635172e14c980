"""Plans with a Dim beside plans of fixed extents, on the same operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

import planq

COLUMNS: Final = 4096
MOST_ROWS: Final = 16384
ROWS: Final = (1, 16, 128, 1024)
# Runs in a graph, so that their host part does not count, and how often each graph is replayed.
NODES, REPLAYS, WARM_UP = 20, 400, 40


def descriptors(rows: int | planq.Dim) -> dict[str, planq.Descriptor]:
    """What is timed, for so many rows."""
    shape: Any = (rows, COLUMNS)
    floats: dict[str, Any] = {"shape": shape, "input_dtype": "bfloat16"}
    codes: dict[str, Any] = {**floats, "output_dtype": "int8"}
    return {
        "dynamic_range_quantize.token": planq.DynamicRangeQuantizeDescriptor(
            **codes, scope=planq.Scope.token(), mode=planq.Mode.SYMMETRIC
        ),
        "quantize": planq.QuantizeDescriptor(**codes),
        "dequantize": planq.DequantizeDescriptor(
            shape=shape, input_dtype="int8", output_dtype="bfloat16"
        ),
        "codebook_quantize": planq.CodebookQuantizeDescriptor(
            **floats, output_dtype="uint8", codebook=planq.Codebook.DYNAMIC
        ),
    }


def make_args(desc: planq.Descriptor, device: str) -> Any:
    """Operands of a descriptor of fixed extents, all of which both kinds of plan take."""
    operands = {}
    for name, spec in desc.operands().items():
        dtype = getattr(torch, spec.storage)
        values = torch.rand(spec.extents, device=device) + 0.5
        operands[name] = values.to(dtype) if dtype.is_floating_point else (values * 64).to(dtype)
    info = next(one for one in planq.operators() if one.name == desc.operator)
    return info.args(**operands)


class Pair:
    """A plan with a Dim, the plan of these extents, and operands for both."""

    def __init__(self, stream: object, name: str, rows: int, device: str) -> None:
        """Selects both."""
        fixed = descriptors(rows)[name]
        self.args = make_args(fixed, device)
        flexible = descriptors(planq.Dim("m", MOST_ROWS))[name]
        self.plans = (planq.Plan.select(stream, flexible), planq.Plan.select(stream, fixed))
        size = max(self.plans[0].workspace_size(m=rows), self.plans[1].workspace_size())
        self.workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None

    def launches(self, stream: object) -> tuple[Callable[[], object], Callable[[], object]]:
        """A run of either plan, that with the Dim first."""
        first, second = self.plans
        return (
            lambda: first.run(stream, self.workspace, self.args),
            lambda: second.run(stream, self.workspace, self.args),
        )


def _capture(launch: Callable[[], object]) -> Any:
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    for _ in range(NODES):
        launch()
    graph.capture_end()
    return graph


def _event() -> Any:
    event: Any = torch.cuda.Event
    return event(enable_timing=True)


def device_seconds(pair: Pair, stream: Any) -> tuple[list[float], list[float]]:
    """Seconds of the GPU for each run, by CUDA events around replays of graphs in turn.

    Which plan comes first changes from round to round, so that a drift meets both alike.
    """
    with torch.cuda.stream(stream):
        graphs = [_capture(launch) for launch in pair.launches(stream)]
        for _ in range(WARM_UP):
            for graph in graphs:
                graph.replay()
        events: tuple[list[Any], list[Any]] = ([], [])
        for turn in range(REPLAYS):
            for which in (0, 1) if turn % 2 else (1, 0):
                begin, end = _event(), _event()
                begin.record()
                graphs[which].replay()
                end.record()
                events[which].append((begin, end))
        stream.synchronize()
    first, second = ([b.elapsed_time(e) * 1e-3 / NODES for b, e in found] for found in events)
    return first, second
