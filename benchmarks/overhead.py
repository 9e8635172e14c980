"""Measures what a call costs the host, with the no-op operator of the tests.

    python3 benchmarks/overhead.py [--json PATH]

Needs a build with PLANQ_TEST_OPERATORS=ON (``make bench`` makes one). Without a GPU it measures the
no-op kernel of the host backend, which is the whole of planq's share; with one, also how an empty
kernel launched through planq compares with the same launch from a C++ loop. Then, for either, what
comes before a run: a descriptor, a warm ``Plan.select``, a plan's first ``precision_guarantee``.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

import planq
import planq.torch  # defines torch.ops.planq
from harness.core import dims
from harness.core.report import software
from harness.native.native import CCalls, Native, processor_name
from planq import recording

SHAPE: Final = (64, 64)
LAYER: Final = {"input": 16, "weight": 1024}
HOST_CALLS, HOST_BLOCKS = 20_000, 41
# Fewer launches than the driver queues, so that none waits for the GPU; then the queue is emptied.
GPU_CALLS, GPU_BLOCKS = 200, 301
SELECT_CALLS, SELECT_BLOCKS = 50, 21
GUARANTEE_CALLS = 5
VALIDATED_US, BOUND_US, GPU_RATIO = 0.6, 0.15, 1.25
DESCRIPTOR_US, SELECT_US, GUARANTEE_US = 8.0, 20.0, 1.0
MEMBERS, MEMBER_CALLS, MEMBER_US = 300, 50, 0.15
# Runs with a Dim and without in turn; how much longer a run may take the host, and the GPU.
DIM_CALLS, DIM_TURNS, DIM_US, DIM_RATIO = 500, 20, 0.1, 1.03
# Runs that are recorded, and not: what one that is no sample costs more, and what one sample in a
# thousand runs costs a layer, with everything on one processor.
RECORD_CALLS, RECORD_TURNS, RECORD_BLOCKS = 1000, 5, 5
UNSAMPLED_US, RECORD_RATIO = 0.2, 1.02
# A call through torch's dispatcher, with its results given, and the same run of the plan in turn.
TORCH_CALLS, TORCH_TURNS, TORCH_US = 500, 20, 2.5

Block = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds a call: the median of the blocks, and the fastest block.

    The target speaks of ``value``, which is the median or its ratio to another figure.
    """

    name: str
    us: float
    fastest_us: float
    value: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.value is None or self.at_most is None:
            return None
        return self.value <= self.at_most

    def line(self) -> str:
        """The row of the table."""
        verdict = ""
        if self.met is not None:
            verdict = f"[{self.value:.3f} <= {self.at_most} {'ok' if self.met else 'MISSED'}]"
        return f"{self.name:<50} {self.us:>8.3f} {self.fastest_us:>8.3f}  {verdict}".rstrip()


def load_noop() -> Any:
    """The module of the no-op operator.

    Raises:
        SystemExit: This build of planq has no such operator.
    """
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    try:
        return importlib.import_module("operators.noop")
    except KeyError:
        raise SystemExit("no no-op operator: build with PLANQ_TEST_OPERATORS=ON") from None


def numpy_operands() -> dict[str, Any]:
    """Four operands as NumPy arrays."""
    return {
        "input": np.ones(SHAPE, np.float32),
        "output": np.ones(SHAPE, np.int8),
        "scale": np.ones(1, np.float32),
        "zero_point": np.ones(1, np.int32),
    }


def torch_operands(device: str) -> dict[str, Any]:
    """The same as torch tensors."""
    return {name: torch.from_numpy(array).to(device) for name, array in numpy_operands().items()}


# The three loops differ in one line each: a call through a common one would be measured as well.


def time_runs(plan: Any, stream: object, args: object, calls: int) -> float:
    """Seconds for each of some validated runs."""
    run = plan.run
    begin = time.perf_counter()
    for _ in repeat(None, calls):
        run(stream, None, args)
    return (time.perf_counter() - begin) / calls


def time_launches(launch: Callable[[object], object], stream: object, calls: int) -> float:
    """Seconds for each of some bound launches."""
    begin = time.perf_counter()
    for _ in repeat(None, calls):
        launch(stream)
    return (time.perf_counter() - begin) / calls


def time_nothing(calls: int) -> float:
    """Seconds for each round of the loop itself, which the other two include."""
    begin = time.perf_counter()
    for _ in repeat(None, calls):
        pass
    return (time.perf_counter() - begin) / calls


def sample(blocks: dict[str, Block], rounds: int, after: Callable[[], object]) -> dict[str, Figure]:
    """Runs the blocks in turn, so that a drift of the machine meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for block in blocks.values():
        block()
    for _ in range(rounds):
        for name, block in blocks.items():
            times[name].append(block())
            after()
    return {
        name: Figure(name, statistics.median(found) * 1e6, min(found) * 1e6)
        for name, found in times.items()
    }


def c_blocks(where: str, calls: CCalls, desc: planq.Descriptor, count: int) -> dict[str, Block]:
    """The same calls through planq.h, from a compiled loop."""
    return {
        f"{where}: {what} from C": partial(calls.seconds, desc, count, bound=what == "bound launch")
        for what in ("validated run", "bound launch")
    }


def measure_host(module: Any) -> list[Figure]:
    """What planq itself costs: the no-op kernel of the host backend."""
    desc = module.NoopDescriptor(shape=SHAPE, input_dtype="float32", output_dtype="int8")
    plan = planq.Plan.select(planq.HOST, desc)
    blocks: dict[str, Block] = {"host: the loop alone": partial(time_nothing, HOST_CALLS)}
    limits: dict[str, float] = {}
    for kind, operands in (("torch", torch_operands("cpu")), ("NumPy", numpy_operands())):
        args = module.NoopArgs(**operands)
        name = f"host: validated run, four {kind} operands"
        blocks[name] = partial(time_runs, plan, planq.HOST, args, HOST_CALLS)
        limits[name] = VALIDATED_US
        name = f"host: bound launch, four {kind} operands"
        blocks[name] = partial(time_launches, plan.bind(None, args), planq.HOST, HOST_CALLS)
        limits[name] = BOUND_US
    arrays = numpy_operands()
    in_c = CCalls([array.ctypes.data for array in arrays.values()])
    from_c = c_blocks("host", in_c, desc, HOST_CALLS)
    blocks |= from_c
    limits |= zip(from_c, (VALIDATED_US, BOUND_US), strict=True)
    figures = sample(blocks, HOST_BLOCKS, lambda: None)
    return [
        replace(figure, value=figure.us, at_most=limits[name]) if name in limits else figure
        for name, figure in figures.items()
    ]


def time_members(plan: Any, args: object, empty: Any, nothing: object) -> float:
    """Seconds for each member of two lists in a validated run, less what a run of none takes."""
    whole = time_runs(plan, planq.HOST, args, MEMBER_CALLS)
    return (whole - time_runs(empty, planq.HOST, nothing, MEMBER_CALLS)) / (2 * MEMBERS)


def measure_lists() -> list[Figure]:
    """What a member of a list adds to a run: its check, and the update of its one element."""
    module: Any = importlib.import_module("operators.list300")

    def prepare(library: Any, count: int) -> tuple[planq.Plan, object]:
        desc = module.List300Descriptor(shapes=[(1,)] * count)
        parameter, gradient = (
            [library.ones(1, dtype=library.float32) for _ in range(count)] for _ in range(2)
        )
        sums = np.ones(count)
        args = module.List300Args(parameter=parameter, gradient=gradient, rate=0.5, sums=sums)
        return planq.Plan.select(planq.HOST, desc), args

    blocks: dict[str, Block] = {}
    for library in (torch, np):
        name = f"host: run, for each of {2 * MEMBERS} {library.__name__} members"
        blocks[name] = partial(time_members, *prepare(library, MEMBERS), *prepare(library, 0))
    figures = sample(blocks, HOST_BLOCKS, lambda: None)
    return [replace(figure, value=figure.us, at_most=MEMBER_US) for figure in figures.values()]


def time_dim(plans: tuple[Any, Any], args: object) -> float:
    """Seconds by which a run with a Dim takes longer than one without, the fastest of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(DIM_TURNS):
        for plan, found in zip(plans, times, strict=True):
            found.append(time_runs(plan, planq.HOST, args, DIM_CALLS))
    return min(times[0]) - min(times[1])


def measure_dims(module: Any) -> list[Figure]:
    """What a Dim adds to a run on the host: of the no-op, and of a kernel that does something."""
    most = planq.Dim("m", dims.MOST_ROWS)
    types: dict[str, Any] = {"input_dtype": "float32", "output_dtype": "int8"}
    operands = numpy_operands()
    noop = module.NoopArgs(**operands)
    del operands["zero_point"]
    makers: dict[str, tuple[Callable[..., planq.Descriptor], object]] = {
        "no-op": (partial(module.NoopDescriptor, **types), noop),
        "quantize": (partial(planq.QuantizeDescriptor, **types), planq.QuantizeArgs(**operands)),
    }
    blocks: dict[str, Block] = {}
    for name, (make, args) in makers.items():
        flexible, fixed = (
            planq.Plan.select(planq.HOST, make(shape=(rows, SHAPE[1]))) for rows in (most, SHAPE[0])
        )
        blocks[f"host: run with a Dim, less without, {name}"] = partial(
            time_dim, (flexible, fixed), args
        )
    figures = sample(blocks, HOST_BLOCKS, lambda: None)
    return [replace(figure, value=figure.us, at_most=DIM_US) for figure in figures.values()]


def time_recorded(plan: Any, args: object, every: int) -> tuple[float, float]:
    """Seconds for each of some runs, recorded and not, the fastest of each.

    What was sampled is written before the time ends.
    """
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        recording.start(recording.Settings(Path(folder), every=every))
        for _ in range(RECORD_TURNS):
            begin = time.perf_counter()
            time_runs(plan, planq.HOST, args, RECORD_CALLS)
            recording.flush()
            recorded.append((time.perf_counter() - begin) / RECORD_CALLS)
        recording.stop()
    turns = range(RECORD_TURNS)
    return min(recorded), min(time_runs(plan, planq.HOST, args, RECORD_CALLS) for _ in turns)


def measure_recording(module: Any) -> list[Figure]:
    """What PLANQ_RECORD costs runs on the host."""
    desc = module.NoopDescriptor(shape=SHAPE, input_dtype="float32", output_dtype="int8")
    noop = planq.Plan.select(planq.HOST, desc), module.NoopArgs(**numpy_operands())
    found = [time_recorded(*noop, every=1 << 20) for _ in range(RECORD_BLOCKS)]
    added = [(on - off) * 1e6 for on, off in found]
    name, median = "host: run that is no sample, less one unrecorded", statistics.median(added)
    figures = [Figure(name, median, min(added), median, UNSAMPLED_US)]
    codes = {name: np.ones((rows, 1024), np.int8) for name, rows in LAYER.items()}
    layer = planq.LinearW8A8Descriptor(
        input_shape=codes["input"].shape, weight_shape=codes["weight"].shape, output_dtype="float32"
    )
    args = planq.LinearW8A8Args(
        **codes,
        output=np.empty((LAYER["input"], LAYER["weight"]), np.float32),
        **{f"{name}_scale": np.ones(rows, np.float32) for name, rows in LAYER.items()},
    )
    plan = planq.Plan.select(planq.HOST, layer)
    found = [time_recorded(plan, args, every=RECORD_CALLS) for _ in range(RECORD_BLOCKS)]
    ratio = statistics.median(on / off for on, off in found)
    times = [on * 1e6 for on, _ in found]
    name = "host: linear_w8a8, one run in 1,000 recorded"
    return [*figures, Figure(name, statistics.median(times), min(times), ratio, RECORD_RATIO)]


def time_torch(overload: Any, plan: Any, operands: tuple[Any, ...], args: object) -> float:
    """Seconds by which a call through torch takes longer than a run, the fastest of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TORCH_TURNS):
        begin = time.perf_counter()
        for _ in repeat(None, TORCH_CALLS):
            overload(*operands)
        times[0].append((time.perf_counter() - begin) / TORCH_CALLS)
        times[1].append(time_runs(plan, planq.HOST, args, TORCH_CALLS))
    return min(times[0]) - min(times[1])


def measure_torch(module: Any) -> list[Figure]:
    """What torch's dispatcher and planq.torch add to a run on the host."""
    given = torch_operands("cpu")
    types: dict[str, Any] = {"shape": SHAPE, "input_dtype": "float32", "output_dtype": "int8"}
    noop = planq.Plan.select(planq.HOST, module.NoopDescriptor(**types))
    quantize = planq.Plan.select(planq.HOST, planq.QuantizeDescriptor(**types))
    some = {name: given[name] for name in ("input", "output", "scale")}
    calls: dict[str, tuple[Any, planq.Plan, tuple[Any, ...], object]] = {
        "no-op": (
            torch.ops.planq.noop.out,
            noop,
            (*given.values(), "int8"),
            module.NoopArgs(**given),
        ),
        "quantize": (
            torch.ops.planq.quantize.out,
            quantize,
            (*some.values(), "int8"),
            planq.QuantizeArgs(**some),
        ),
    }
    blocks: dict[str, Block] = {
        f"host: .out through torch, less a run, {name}": partial(time_torch, *call)
        for name, call in calls.items()
    }
    figures = sample(blocks, HOST_BLOCKS, lambda: None)
    return [replace(figure, value=figure.us, at_most=TORCH_US) for figure in figures.values()]


def measure_cuda_dims(stream: Any) -> list[Figure]:
    """Time of the GPU with a Dim, and its ratio to that of a plan of the same extents."""
    figures = []
    for name in dims.descriptors(1):
        for rows in dims.ROWS:
            pair = dims.Pair(stream, name, rows, f"cuda:{stream.device_index}")
            times = [sorted(found) for found in dims.device_seconds(pair, stream)]
            us, fixed = (statistics.median(found) * 1e6 for found in times)
            label = f"gpu: Dim m={rows}, {name}"
            figures.append(Figure(label, us, times[0][0] * 1e6, us / fixed, DIM_RATIO))
    return figures


def measure_cuda(module: Any) -> list[Figure]:
    """An empty kernel through planq, against cudaLaunchKernel of an equal one in a C++ loop."""
    make_stream: Any = torch.cuda.Stream
    theirs = make_stream()
    device = planq.devices()[theirs.device_index]
    native = Native(device.arch, theirs.cuda_stream)
    ours = planq.cuda_stream(theirs.cuda_stream, theirs.device_index)
    desc = module.NoopDescriptor(shape=SHAPE, input_dtype="float32", output_dtype="int8")
    plan = planq.Plan.select(ours, desc)
    args = module.NoopArgs(**torch_operands(f"cuda:{theirs.device_index}"))
    launch = plan.bind(None, args)
    torch.cuda.synchronize()
    bare = "gpu: bare cudaLaunchKernel, C++ loop"
    blocks: dict[str, Block] = {
        bare: lambda: native.bare_launches(GPU_CALLS) / GPU_CALLS,
        "gpu: bound launch, planq stream": partial(time_launches, launch, ours, GPU_CALLS),
        "gpu: bound launch, torch stream": partial(time_launches, launch, theirs, GPU_CALLS),
        "gpu: validated run, planq stream": partial(time_runs, plan, ours, args, GPU_CALLS),
        "gpu: validated run, torch stream": partial(time_runs, plan, theirs, args, GPU_CALLS),
    }
    memory = [getattr(args, name).data_ptr() for name in numpy_operands()]
    in_c = CCalls(memory, theirs.cuda_stream, theirs.device_index)
    blocks |= c_blocks("gpu", in_c, desc, GPU_CALLS)
    figures = sample(blocks, GPU_BLOCKS, theirs.synchronize)
    floor = figures[bare].us
    return [
        figure if name == bare else replace(figure, value=figure.us / floor, at_most=GPU_RATIO)
        for name, figure in figures.items()
    ]


def make_descriptor() -> planq.DynamicRangeQuantizeDescriptor:
    """A descriptor with all of its twelve fields given."""
    return planq.DynamicRangeQuantizeDescriptor(
        shape=(4096, 8192),
        input_dtype="bfloat16",
        output_dtype="int8",
        scope=planq.Scope.token(),
        mode=planq.Mode.SYMMETRIC,
        q_min=-127,
        q_max=127,
        scale_dtype="float32",
        quotient=planq.Quotient.DIVIDE,
        nonfinite=planq.NonFinite.PROPAGATE,
        include_zero=True,
        nibble_order=planq.NibbleOrder.LOW_FIRST,
    )


def selected_descriptors() -> dict[str, planq.Descriptor]:
    """What plans are selected for, by name."""
    types: dict[str, Any] = {"shape": (4096, 8192), "input_dtype": "bfloat16"}
    codes: dict[str, Any] = {**types, "output_dtype": "uint8", "codebook": planq.Codebook.DYNAMIC}
    return {
        "dynamic_range_quantize.token": make_descriptor(),
        "quantize": planq.QuantizeDescriptor(**types, output_dtype="int8"),
        "codebook_quantize": planq.CodebookQuantizeDescriptor(**codes),
        "blockwise_quantize": planq.BlockwiseQuantizeDescriptor(**codes, block_size=256),
        "token, with a Dim": dims.descriptors(planq.Dim("m", dims.MOST_ROWS))[
            "dynamic_range_quantize.token"
        ],
    }


def time_descriptors(calls: int) -> float:
    """Seconds for each of some descriptors."""
    begin = time.perf_counter()
    for _ in repeat(None, calls):
        make_descriptor()
    return (time.perf_counter() - begin) / calls


def time_selects(stream: object, desc: planq.Descriptor, calls: int) -> float:
    """Seconds for each of some selections."""
    select = planq.Plan.select
    begin = time.perf_counter()
    for _ in repeat(None, calls):
        select(stream, desc)
    return (time.perf_counter() - begin) / calls


def time_guarantees(stream: object, desc: planq.Descriptor, calls: int) -> float:
    """Seconds for each of some guarantees, of new plans: a plan may keep its own."""
    plans = [planq.Plan.select(stream, desc) for _ in range(calls)]
    begin = time.perf_counter()
    for plan in plans:
        plan.precision_guarantee()
    return (time.perf_counter() - begin) / calls


def measure_planning(where: str, stream: object) -> list[Figure]:
    """What comes before a run; nothing of it touches the device's memory."""
    blocks: dict[str, Block] = {}
    limits: dict[str, float] = {}
    name = f"{where}: descriptor of twelve fields"
    blocks[name] = partial(time_descriptors, SELECT_CALLS)
    limits[name] = DESCRIPTOR_US
    for operator, desc in selected_descriptors().items():
        name = f"{where}: select {operator}"
        blocks[name] = partial(time_selects, stream, desc, SELECT_CALLS)
        limits[name] = SELECT_US
        name = f"{where}: guarantee {operator}"
        blocks[name] = partial(time_guarantees, stream, desc, GUARANTEE_CALLS)
        limits[name] = GUARANTEE_US
    figures = sample(blocks, SELECT_BLOCKS, lambda: None)
    return [
        replace(figure, value=figure.us, at_most=limits[name]) for name, figure in figures.items()
    ]


def pin() -> int:
    """Keeps this thread on one processor, whose number is returned."""
    chosen = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {chosen})
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the host's share of a call.")
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    module = load_noop()
    on_gpu = torch.cuda.is_available() and planq.build_info().cuda
    if on_gpu:
        torch.zeros(1, device="cuda")  # first, so that the driver's own threads are not pinned
    processor = pin()
    gc.disable()
    figures = [*measure_host(module), *measure_dims(module), *measure_lists()]
    figures += measure_torch(module) + measure_recording(module)
    figures += measure_planning("host", planq.HOST)
    if on_gpu:
        stream = torch.cuda.current_stream()
        figures += [*measure_cuda(module), *measure_planning("gpu", stream)]
        make_stream: Any = torch.cuda.Stream
        figures += measure_cuda_dims(make_stream())
    print(f"{'':<50} {'median':>8} {'fastest':>8}  us a call, the loop included")
    print("\n".join(figure.line() for figure in figures))
    if arguments.json:
        content = {
            "format": 1,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "processor": processor_name(),
            "pinned_to": processor,
            "gpu": planq.devices()[0].name if on_gpu else None,
            "software": software(),
            "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
