"""Times the kernels of a step of Gemma 3 of plans on a GPU, by torch's profiler.

    python3 benchmarks/steps.py MODEL.gguf|drawn [--device cuda] [--texts 1,64] [--prompt 512]
        [--context 256] [--steps 10] [--json FOLDER]

README.md in this folder says how to read it.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from harness.core.cuda import device_facts
from harness.core.report import begun, keep
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import Gemma3, Limits, Part

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "networks"))
from gemma3_drawn import Drawn

VOCABULARY: Final = 262144  # of the drawn model: that of the real one
WARM: Final = 3  # steps before those that are timed: graphs are captured there


class Event(NamedTuple):
    """A kernel or a copy on the device; times in microseconds."""

    name: str
    begin: float
    end: float


def plain(name: str) -> str:
    """A kernel's name without namespaces that say nothing, and without its arguments."""
    short = re.sub(r"planq::|\(anonymous namespace\)::|<unnamed>::|^void ", "", name)
    return re.sub(r"\s*\([^()]*\)$", "", short)


def told_of(events: Iterable[Event], steps: int) -> dict[str, Any]:
    """What so many steps consist of, those that take longest first."""
    ordered = sorted(events, key=lambda event: event.begin)
    kernels: dict[str, list[float]] = {}
    for event in ordered:
        kernels.setdefault(plain(event.name), []).append(event.end - event.begin)
    pairs = itertools.pairwise(ordered)
    return {
        "busy_us": sum(event.end - event.begin for event in ordered) / steps,
        "idle_us": sum(max(after.begin - before.end, 0.0) for before, after in pairs) / steps,
        "kernels": {
            name: {"us": sum(times) / steps, "launches": len(times) / steps}
            for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))
        },
    }


def measured(run: Callable[[], object], steps: int) -> dict[str, Any]:
    """The kernels of a run of so many steps, and how long it takes without the profiler."""
    begin = time.perf_counter()
    run()
    spent = time.perf_counter() - begin
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    events = [
        Event(event.name, event.time_range.start, event.time_range.end)
        for event in seen.events() or ()
        if str(event.device_type).endswith("CUDA")
    ]
    return {"step_us": spent / steps * 1e6, **told_of(events, steps)}


def decoding(network: Gemma3, prompts: np.ndarray[Any, Any], steps: int) -> dict[str, Any]:
    """Steps of one token of each text; the host learns every token, while the next is computed."""
    context = prompts.shape[1]
    texts = [network.text(context + WARM + 3 * steps) for _ in prompts]
    for text, ids in zip(texts, prompts.tolist(), strict=True):
        made = network.step([Part(text, ids)])
    made = network.step([Part(text, [1]) for text in texts])

    def run(count: int) -> None:
        nonlocal made
        for _ in range(count):
            following = network.step([Part(text) for text in texts])
            made.tokens()
            made = following
        made.tokens()

    run(WARM)
    found = measured(lambda: run(steps), steps)
    for text in texts:
        text.release()
    return {"part": "decode", "texts": len(texts), "context": context, **found}


def reading(network: Gemma3, ids: list[int]) -> dict[str, Any]:
    """A step of a whole prompt."""

    def run() -> None:
        text = network.text(len(ids))
        network.step([Part(text, ids)]).tokens()
        text.release()

    run()
    return {"part": "prompt", "tokens": len(ids), **measured(run, 1)}


def table(entry: dict[str, Any]) -> str:
    """What is printed of one measurement."""
    sort = f"{entry['texts']} texts" if entry["part"] == "decode" else f"{entry['tokens']} tokens"
    lines = [
        f"{entry['part']}, {sort}: {entry['step_us']:.0f} us a step, "
        f"of which kernels take {entry['busy_us']:.0f} and gaps {entry['idle_us']:.0f}"
    ]
    for name, own in entry["kernels"].items():
        each = own["us"] / own["launches"]
        lines.append(f"  {own['us']:9.1f} us  {own['launches']:6.1f} x {each:7.2f}  {name}")
    return "\n".join(lines)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the kernels of steps of Gemma 3.")
    parser.add_argument("model", help="a GGUF file, or drawn: random weights of those shapes")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--texts", default="1,64", help="of a step, several runs")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--context", type=int, default=256, help="tokens before those written")
    parser.add_argument("--steps", type=int, default=10, help="of each measurement")
    parser.add_argument("--json", type=Path, help="the folder of records")
    return parser.parse_args(words)


def network_of(given: argparse.Namespace, texts: list[int]) -> Gemma3:
    """With room for all measurements, one after another."""
    context = given.context + WARM + 3 * given.steps
    limits = Limits(
        rows=max(given.prompt, *texts),
        texts=max(texts),
        asked=max(texts),
        context=max(given.prompt, context),
    )
    limits = replace(limits, pages=limits.table * max(texts))
    if given.model == "drawn":
        return Gemma3(Drawn(vocabulary=VOCABULARY), given.device, limits)
    with read_gguf(given.model) as files:
        return Gemma3(files, given.device, limits)


def main(words: Sequence[str]) -> int:
    given = parsed(words)
    texts, draw = [int(count) for count in given.texts.split(",")], np.random.default_rng(2)
    network = network_of(given, texts)

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return draw.integers(3, network.sizes.vocabulary, shape)

    entries = [decoding(network, drawn(count, given.context), given.steps) for count in texts]
    entries.append(reading(network, drawn(given.prompt).tolist()))
    print("\n".join(map(table, entries)))
    if given.json:
        machine = device_facts(int(given.device.partition(":")[2] or 0))
        record = {
            **begun(list(words), machine),
            "model": Path(given.model).name,
            "steps": entries,
        }
        keep(given.json, "steps", record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
