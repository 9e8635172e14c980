"""Measures quantized collectives beside torch's own of bfloat16, host and device time apart.

    torchrun --nproc-per-node 2 benchmarks/collectives.py [--json PATH] [--backend nccl|gloo]
        [--sizes 16,20,28] [--lists llama-8b/4,bucket] [--quick]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

import planq.distributed as pd
from harness.cuda import device_facts
from harness.models import shapes_of
from harness.native import processor_name
from harness.report import command, folder_of, software

DTYPES: Final = ("int8", "int4")
SIZES: Final = tuple(range(16, 29, 2))
# Fewer calls than the driver queues, so that none waits for the GPU.
CALLS, BLOCKS = 20, 15
LARGE: Final = 1 << 28
HOST_TARGETS: Final = {"reduce_scatter": "<= 60", "all_reduce": "<= 100"}
RATIO_TARGETS: Final = {
    ("reduce_scatter", "int8"): "<= 1.0",
    ("reduce_scatter", "int4"): "<= 0.75",
    ("all_reduce", "int8"): "<= 1.1",
    ("all_reduce", "int4"): "<= 0.75",
}
BUCKET: Final = ((1024, 4096),) * 3 + ((4096,),) * 2
CYCLES_PER_SECOND: Final = 2e9
"""At most, of a GPU that sleeps."""

# torch 2.13 has a new name for it, and warns of the old one.
_reduce_scatter: Final[Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of a call, on the slowest rank: medians of the blocks.

    Attributes:
        host_us: Until the call returns, with nothing before it that it could wait for.
        device_us: Between events, with all calls enqueued before the first begins; None: there is
            no device.
        us: Of one call behind the other, until the last has ended.
        samples: How many blocks.
        calls: In each block.
    """

    host_us: float
    device_us: float | None
    us: float
    samples: int
    calls: int


class Ranks:
    """The processes of this run, and their devices."""

    def __init__(self, backend: str) -> None:
        self.rank, self.on_gpu = int(os.environ["RANK"]), backend == "nccl"
        self.device = torch.device("cpu")
        options: dict[str, Any] = {}
        if self.on_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
            options["device_id"] = self.device
        else:
            torch.set_num_threads(1)
        dist.init_process_group(backend, **options)
        self.count = dist.get_world_size()
        if self.on_gpu:
            make: Any = torch.cuda.Stream
            torch.cuda.set_stream(make())

    def facts(self) -> dict[str, Any]:
        """The machine, as records of other benchmarks name it."""
        if self.on_gpu:
            return {**device_facts(self.device.index), "ranks": self.count}
        return {"name": "host", "processor": processor_name(), "ranks": self.count}

    def slowest(self, value: float) -> float:
        """The largest of all ranks."""
        held = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return float(held.item())

    def wait(self) -> None:
        """Until every rank has come here, and its device is idle."""
        self.slowest(0.0)
        self.synchronize()

    def synchronize(self) -> None:
        """Until the device is idle."""
        if self.on_gpu:
            torch.cuda.synchronize()

    # --- time, in seconds a call

    def host(self, call: Call, calls: int) -> float:
        """Until calls return."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    def whole(self, call: Call, calls: int) -> float:
        """Until the last has ended."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        self.synchronize()
        return (time.perf_counter() - begin) / calls

    def on_device(self, call: Call, calls: int, host: float) -> float:
        """Between events, behind a sleep as long as the host needs to enqueue everything."""
        self.wait()
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda._sleep(int(1.5 * host * (calls + 2) * CYCLES_PER_SECOND))
        call()  # devices that sleep for different times meet in it
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / calls

    def times(self, call: Call, blocks: int) -> Times:
        """All three, of the slowest rank."""
        for _ in range(3):  # connections, plans and addresses
            self.slowest(self.whole(call, 1))
        each = self.slowest(self.whole(call, 3))
        calls = max(2, min(CALLS, int(0.05 / max(each, 1e-9))))
        hosts = [self.slowest(self.host(call, calls)) for _ in range(blocks)]
        wholes = [self.slowest(self.whole(call, calls)) for _ in range(blocks)]
        device = None
        if self.on_gpu:
            longest = max(hosts)
            found = [self.slowest(self.on_device(call, calls, longest)) for _ in range(blocks)]
            device = round(statistics.median(found) * 1e6, 2)
        host, whole = (round(statistics.median(found) * 1e6, 2) for found in (hosts, wholes))
        return Times(host, device, whole, blocks, calls)


class Problem:
    """A collective of one bfloat16 tensor or of a list, by planq and by torch alone.

    What torch sums of a list lies in one memory, as a program would have to copy it.
    """

    def __init__(self, collective: str, shapes: Sequence[tuple[int, ...]], ranks: Ranks) -> None:
        self.collective, self.ranks = collective, ranks
        counts = [math.prod(shape) for shape in shapes]
        self.elements = sum(counts)
        seed = torch.Generator().manual_seed(ranks.rank)
        some = torch.randn(min(self.elements, 1 << 20), generator=seed).bfloat16()
        self.x = torch.empty(self.elements, dtype=torch.bfloat16, device=ranks.device)
        for part in self.x.split(some.numel()):
            part.copy_(some[: part.numel()])
        scatters = collective == "reduce_scatter"
        # Of a list, results take the place of what is given.
        self.given: Any = list(self.x.split(counts)) if len(counts) > 1 else self.x
        self.out: Any = self.given
        if len(counts) == 1:
            self.out = self.x.new_empty(self.elements // ranks.count if scatters else self.elements)
        self.whole = self.x if len(counts) > 1 else self.out
        # The mean stays where it is, however often it is taken; gloo has none.
        self.op = dist.ReduceOp.AVG if ranks.on_gpu else dist.ReduceOp.SUM

    def ours(self, dtype: str) -> None:
        """The call of planq."""
        call: Any = pd.quantized_reduce_scatter
        if self.collective == "all_reduce":
            call = pd.quantized_all_reduce
        call(self.given, out=self.out, op=self.op, dtype=dtype)

    def theirs(self) -> None:
        """The same by torch, in bfloat16."""
        if self.collective == "all_reduce":
            dist.all_reduce(self.whole, op=self.op)
        else:
            _reduce_scatter(self.out, self.x, op=self.op)

    def targets(self, dtype: str, ours: Times, theirs: Times) -> list[dict[str, Any]]:
        """What has to hold on GPUs of one host, and whether it does."""
        found = []
        if self.ranks.on_gpu and not isinstance(self.given, list):
            found.append(_target("host_us", ours.host_us, HOST_TARGETS[self.collective]))
            if self.elements == LARGE:
                bound = RATIO_TARGETS[self.collective, dtype]
                found.append(_target("us over torch's", ours.us / theirs.us, bound))
        return found


def _target(measure: str, value: float, bound: str) -> dict[str, Any]:
    met = value <= float(bound.removeprefix("<= "))
    return {"measure": measure, "bound": bound, "value": round(value, 4), "met": met}


def measure(ranks: Ranks, problem: Problem, name: str, blocks: int) -> list[dict[str, Any]]:
    """Entries of the record, whose lines are printed by the first rank."""
    peer, found = ranks.times(problem.theirs, blocks), []
    for dtype in DTYPES:
        ours = ranks.times(partial(problem.ours, dtype), blocks)
        entry = {
            "name": f"{problem.collective}/bf16_{dtype}/{name}",
            "ranks": ranks.count,
            "elements": problem.elements,
            **asdict(ours),
            "peers": {"torch_bf16": asdict(peer)},
            "measures": {"ratio": round(ours.us / peer.us, 4)},
            "targets": problem.targets(dtype, ours, peer),
        }
        found.append(entry)
        if ranks.rank == 0:
            print(_line(entry), flush=True)
    return found


def shapes_of_list(name: str) -> tuple[tuple[int, ...], ...]:
    """Those of a model's parameters, or of about a bucket of 25 MiB of DDP."""
    return BUCKET if name == "bucket" else shapes_of(name)


def _line(entry: dict[str, Any]) -> str:
    peer = entry["peers"]["torch_bf16"]
    cells = " ".join(
        f"{'' if value is None else format(value, '.1f'):>10}"
        for times in (entry, peer)
        for value in (times["host_us"], times["device_us"], times["us"])
    )
    verdicts = " ".join(
        f"[{each['measure']} {each['value']:.3g} {each['bound']} {_word(each['met'])}]"
        for each in entry["targets"]
    )
    return f"{entry['name']:<44} {cells} {entry['measures']['ratio']:>7.2f}  {verdicts}".rstrip()


def _word(met: bool) -> str:
    return "ok" if met else "MISSED"


def write(path: Path, facts: dict[str, Any], backend: str, entries: list[dict[str, Any]]) -> None:
    """One JSON file, or into a folder ``<gpu>/collectives-<ranks>.json``."""
    if path.suffix != ".json":
        path = path / folder_of(facts["name"]) / f"collectives-{facts['ranks']}.json"
    content = {
        "format": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(sys.argv[1:]),
        "machine": facts,
        "backend": backend,
        "software": software(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    path.write_text(f'{json.dumps(content, indent=1)[:-2]},\n "collectives": [\n{lines}\n ]\n}}\n')


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure quantized collectives beside torch's.")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        help="exponents of two, such as 16,20; by default all even ones from 16 to 28",
    )
    parser.add_argument("--lists", help="llama-8b, llama-8b/4 and bucket: lists to reduce as well")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="a .json file, or a folder for <gpu>/<file>"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if "RANK" not in os.environ:
        raise SystemExit("run it by torchrun --nproc-per-node 2")
    sizes = [int(each) for each in arguments.sizes.split(",") if each]
    ranks = Ranks(arguments.backend)
    facts = ranks.facts()
    if ranks.rank == 0:
        print(f"{facts['name']}, {ranks.count} ranks, {arguments.backend}")
        heads = " ".join(f"{head:>10}" for head in ("host us", "device us", "us") * 2)
        print(f"{'planq, then torch in bfloat16':<44} {heads}   ratio  targets")
    blocks = 5 if arguments.quick else BLOCKS
    entries = []
    for collective in HOST_TARGETS:
        for size in sizes:
            problem = Problem(collective, [(1 << size,)], ranks)
            entries += measure(ranks, problem, f"2^{size}", blocks)
            del problem
    for name in arguments.lists.split(",") if arguments.lists else ():
        problem = Problem("all_reduce", shapes_of_list(name), ranks)
        entries += measure(ranks, problem, f"{name} {len(problem.given)} tensors", blocks)
        del problem
    if ranks.rank == 0 and arguments.json:
        write(arguments.json, facts, arguments.backend, entries)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
