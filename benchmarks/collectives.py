"""Measures quantized collectives beside torch's own of bfloat16, host and device time apart.

    torchrun --nproc-per-node 2 benchmarks/collectives.py [--json PATH] [--backend nccl|gloo]
        [--sizes 16,20,28] [--lists llama-8b/4,bucket] [--hooks] [--training STEPS] [--quick]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

import planq.distributed as pd
from harness.core.models import shapes_of
from harness.core.ranks import Ranks, Times
from harness.core.report import begun, folder_of
from harness.peers import hooks
from planq.distributed import _transport

DTYPES: Final = ("int8", "int4")
SIZES: Final = tuple(range(16, 29, 2))
BLOCKS: Final = 15
LARGE: Final = 1 << 28
HOST_TARGETS: Final = {"reduce_scatter": "<= 60", "all_reduce": "<= 100"}
RATIO_TARGETS: Final = {
    ("reduce_scatter", "int8"): "<= 1.0",
    ("reduce_scatter", "int4"): "<= 0.75",
    ("all_reduce", "int8"): "<= 1.1",
    ("all_reduce", "int4"): "<= 0.75",
}
BUCKET: Final = ((1024, 4096),) * 3 + ((4096,),) * 2
"""Gradients of 24 MiB in bfloat16."""
ROOT: Final = Path(__file__).resolve().parent.parent

# torch 2.13 has a new name for it, and warns of the old one.
_reduce_scatter: Final[Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)


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

    def bound(self, dtype: str) -> pd.BoundCollective:
        """The same, checked once."""
        return pd.bind(self.collective, self.given, out=self.out, op=self.op, dtype=dtype)

    def theirs(self) -> None:
        """The same by torch, in bfloat16."""
        if self.collective == "all_reduce":
            dist.all_reduce(self.whole, op=self.op)
        else:
            _reduce_scatter(self.out, self.x, op=self.op)

    def targets(self, dtype: str, found: dict[str, Times]) -> list[dict[str, Any]]:
        """What has to hold on GPUs of one host, and whether it does."""
        targets = []
        if self.ranks.on_gpu and not isinstance(self.given, list):
            bound = HOST_TARGETS[self.collective]
            targets += [
                _target("host_us", found["plain"].host_us, bound),
                _target("bound host_us", found["bound"].host_us, bound),
            ]
            if self.elements == LARGE:
                bound = RATIO_TARGETS[self.collective, dtype]
                ratio = found["plain"].us / found["torch"].us
                targets.append(_target("us over torch's", ratio, bound))
        return targets


def _target(measure: str, value: float, bound: str) -> dict[str, Any]:
    met = value <= float(bound.removeprefix("<= "))
    return {"measure": measure, "bound": bound, "value": round(value, 4), "met": met}


def measure(ranks: Ranks, problem: Problem, name: str, blocks: int) -> list[dict[str, Any]]:
    """Entries of the record, whose lines are printed by the first rank."""
    peer, entries = ranks.times(problem.theirs, blocks), []
    for dtype in DTYPES:
        found = {"torch": peer, "plain": ranks.times(partial(problem.ours, dtype), blocks)}
        found["bound"] = ranks.times(problem.bound(dtype), blocks)
        with no_transfers():
            kernels = ranks.times(problem.bound(dtype), blocks)
        entry = {
            "name": f"{problem.collective}/bf16_{dtype}/{name}",
            "ranks": ranks.count,
            "elements": problem.elements,
            **asdict(found["plain"]),
            "bound": asdict(found["bound"]),
            "kernels": asdict(kernels),
            "peers": {"torch_bf16": asdict(peer)},
            "measures": {"ratio": round(found["plain"].us / peer.us, 4)},
            "targets": problem.targets(dtype, found),
        }
        entries.append(entry)
        if ranks.rank == 0:
            print(_line(entry), flush=True)
    return entries


@contextlib.contextmanager
def no_transfers() -> Iterator[None]:
    """What is bound meanwhile sends nothing: launches alone."""
    names = ("scatter", "gather")
    kept = [getattr(_transport, name) for name in names]
    for name in names:
        setattr(_transport, name, lambda *_: lambda: _Nothing)
    try:
        yield
    finally:
        for name, function in zip(names, kept, strict=True):
            setattr(_transport, name, function)


class _Nothing:
    """A transfer that has ended."""

    @staticmethod
    def wait() -> None:
        """There is nothing to wait for."""


def shapes_of_list(name: str) -> tuple[tuple[int, ...], ...]:
    """Those of a model's parameters, or of about a bucket of 25 MiB of DDP."""
    return BUCKET if name == "bucket" else shapes_of(name)


def _line(entry: dict[str, Any]) -> str:
    peer = entry["peers"]["torch_bf16"]
    values = [
        entry["bound"]["host_us"],
        entry["kernels"]["device_us"],
        *[times[key] for times in (entry, peer) for key in ("host_us", "device_us", "us")],
    ]
    cells = " ".join(f"{'' if value is None else format(value, '.1f'):>9}" for value in values)
    verdicts = " ".join(
        f"[{each['measure']} {each['value']:.3g} {each['bound']} {_word(each['met'])}]"
        for each in entry["targets"]
    )
    return f"{entry['name']:<44} {cells} {entry['measures']['ratio']:>6.2f}  {verdicts}".rstrip()


def _word(met: bool) -> str:
    return "ok" if met else "MISSED"


def trained(ranks: Ranks, steps: int) -> Iterator[dict[str, Any]]:
    """Loss curves of examples/ddp_training.py, one for each way that gradients travel."""
    sys.path.insert(0, str(ROOT / "examples"))
    import ddp_training as example

    size = example.Options(steps=steps)
    if not ranks.on_gpu:
        size = example.Options(steps=steps, width=64, layers=2, batch=8, length=64)
    for hook in example.HOOKS:
        result = example.train(hook, size, ranks.device)
        losses = [round(loss, 4) for loss in result.losses]
        if ranks.rank == 0:
            last = f"{losses[-1]:.4f}, held out {result.held_out:.4f} nats a byte"
            print(f"{hook:<44} {last}, {result.ms:.1f} ms a step", flush=True)
        yield {
            "hook": hook,
            **asdict(size),
            "parameters": result.parameters,
            **asdict(result),
            "losses": losses,
        }


def write(path: Path, facts: dict[str, Any], backend: str, found: dict[str, Any]) -> None:
    """One JSON file, or into a folder ``<gpu>/collectives-<ranks>.json``."""
    if path.suffix != ".json":
        path = path / folder_of(facts["name"]) / f"collectives-{facts['ranks']}.json"
    content = {**begun(sys.argv[1:], facts), "backend": backend}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1)[:-2]
    for key, entries in found.items():
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        text += f',\n "{key}": [\n{lines}\n ]'
    path.write_text(f"{text}\n}}\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure quantized collectives beside torch's.")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        help="exponents of two, such as 16,20; by default all even ones from 16 to 28",
    )
    parser.add_argument("--lists", help="llama-8b, llama-8b/4 and bucket: lists to reduce as well")
    parser.add_argument("--hooks", action="store_true", help="those of DDP, of a bucket")
    parser.add_argument(
        "--training", type=int, metavar="STEPS", help="the loss of so many steps, for each hook"
    )
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
        heads = ("bound", "kernels", *("host us", "device us", "us") * 2)
        print(f"{'planq, then torch in bfloat16':<44}", *[f"{head:>9}" for head in heads], " ratio")
    blocks = 5 if arguments.quick else BLOCKS
    found: dict[str, Any] = {"collectives": []}

    def keep(key: str, entries: list[dict[str, Any]]) -> None:
        """Writes what there is, so that a run that is ended has a record."""
        found[key] = [*found.get(key, ()), *entries]
        if ranks.rank == 0 and arguments.json:
            write(arguments.json, facts, arguments.backend, found)

    for collective in HOST_TARGETS:
        for size in sizes:
            problem = Problem(collective, [(1 << size,)], ranks)
            keep("collectives", measure(ranks, problem, f"2^{size}", blocks))
            del problem
    for name in arguments.lists.split(",") if arguments.lists else ():
        problem = Problem("all_reduce", shapes_of_list(name), ranks)
        name = f"{name} {len(problem.given)} tensors"
        keep("collectives", measure(ranks, problem, name, blocks))
        del problem
    if arguments.hooks:
        keep("hooks", hooks.measure(ranks, blocks))
    if arguments.training:
        for each in trained(ranks, arguments.training):
            keep("training", [each])
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
