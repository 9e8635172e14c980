"""Measures MiniLM's encoder as a network of plans beside torch: sentences a second.

    python3 benchmarks/encoder.py MODEL [--device host] [--threads 1,2] [--batches 1,32] [--turns 5]
        [--note TEXT] [--json FOLDER]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from harness.core.cuda import captured, device_facts
from harness.core.report import begun, keep
from harness.core.turns import best_of, host_facts, in_process
from planq.networks import machine_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "networks"))
import minilm
import minilm_torch

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
LEAST: Final = 0.2  # seconds of a turn
BATCHES: Final = {"host": "1,32", "cuda": "1,32,256"}
REPLAYS: Final = 20  # of a graph, before anybody waits for the GPU


class Batch:
    """Sentences as both take them: one behind another, and padded to the longest."""

    def __init__(self, folder: Path, count: int) -> None:
        sentences = itertools.cycle(minilm.SENTENCES)
        self.tokens = minilm.tokenized(folder, list(itertools.islice(sentences, count)))
        self.rows = sum(map(len, self.tokens))
        longest = max(map(len, self.tokens))
        self.ids, self.mask = torch.zeros(2, count, longest, dtype=torch.int64)
        for i, each in enumerate(self.tokens):
            self.ids[i, : len(each)] = torch.tensor(each)
            self.mask[i, : len(each)] = 1


class Peer:
    """torch's encoder in a type, on a device: eager, or compiled."""

    def __init__(self, folder: Path, device: str, dtype: torch.dtype, batch: Batch) -> None:
        self.model = minilm_torch.Encoder(folder).to(device, dtype).eval()
        self.ids, self.mask = batch.ids.to(device), batch.mask.to(device)

    def __call__(self) -> torch.Tensor:
        """Unit vectors."""
        states = self.model(self.ids, self.mask)
        return minilm_torch.embeddings(states.float(), self.mask)


# --- On the host


def of_host(folder: Path, count: int, threads: int) -> dict[str, Callable[[], Any]]:
    """What to call for the embeddings of a batch, from tokens on."""
    batch = Batch(folder, count)
    contenders: dict[str, Callable[[], Any]] = {
        scheme: partial(encoder_of(folder, "host", scheme, batch, threads).embed, batch.tokens)
        for scheme in minilm.SCHEMES
    }
    for dtype in (torch.float32, torch.bfloat16):
        name = f"torch {str(dtype).removeprefix('torch.')}"
        contenders[name] = Peer(folder, "cpu", dtype, batch)
    return contenders


def encoder_of(
    folder: Path, device: str, scheme: str, batch: Batch, threads: int | None = None
) -> minilm.Encoder:
    """One with room for a batch."""
    limits = minilm.Limits(len(batch.tokens), batch.rows, max(map(len, batch.tokens)))
    machine, sizes = machine_of(device, threads), minilm.Sizes.of(folder)
    return minilm.Encoder(minilm.read(folder), sizes, machine, scheme, limits)


# --- On a GPU


def of_cuda(folder: Path, count: int, device: str) -> dict[str, Callable[[], Any]]:
    """What replays graphs of a batch, waits, and returns the embeddings."""
    batch = Batch(folder, count)
    contenders: dict[str, Callable[[], Any]] = {}
    for scheme in minilm.SCHEMES:
        encoder = encoder_of(folder, device, scheme, batch)
        step = encoder.step(count, batch.rows)
        step.fill(batch.tokens)
        contenders[scheme] = partial(replayed, step.run, partial(encoder.machine.get, step.output))
    peer = Peer(folder, device, torch.bfloat16, batch)
    contenders["torch bfloat16"] = graph_of(peer)
    contenders["torch bfloat16, compiled"] = graph_of(torch.compile(peer.__call__, fullgraph=True))
    return contenders


def replayed(run: Run, get: Callable[[], Any]) -> Any:
    """Launches some steps, and waits for the last."""
    for _ in range(REPLAYS):
        run()
    return get()


def graph_of(call: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    """The same of a CUDA graph by torch."""
    graph, made = captured(call)
    return partial(replayed, graph.replay, lambda: made.cpu())


# --- The record


@torch.inference_mode()
def measured(folder: Path, device: str, count: int, threads: int, turns: int) -> dict[str, Any]:
    """Of a number of sentences."""
    on_host = device == "host"
    contenders = of_host(folder, count, threads) if on_host else of_cuda(folder, count, device)
    batch = Batch(folder, count)
    exact = Peer(folder, "cpu", torch.float32, batch)().numpy()
    least = {
        name: float((np.asarray(call()) * exact).sum(axis=1).min())
        for name, call in contenders.items()
    }
    best = best_of({name: [call] for name, call in contenders.items()}, turns, LEAST)
    steps = 1 if on_host else REPLAYS
    return {
        "sentences": count,
        "tokens": batch.rows,
        "padded_tokens": batch.ids.numel(),
        "threads": threads if on_host else None,
        "sentences_per_second": {name: count * steps / spent for name, spent in best.items()},
        "us": {name: spent / steps * 1e6 for name, spent in best.items()},
        "least_cosine": least,
    }


def table(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a run prints."""
    for each in entries:
        threads = f", {each['threads']} threads" if each["threads"] else ""
        yield f"{each['sentences']} sentences of {each['tokens']} tokens{threads}"
        for name, rate in each["sentences_per_second"].items():
            told = f"{each['us'][name]:12.1f} us  cosine {each['least_cosine'][name]:.5f}"
            yield f"  {name:26} {rate:10.1f} sentences/s {told}"


def part_of(given: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """What is measured on so many threads, or on a GPU."""
    torch.set_num_threads(threads)
    counts = [int(count) for count in given.batches.split(",")]
    return [measured(given.model, given.device, count, threads, given.turns) for count in counts]


def in_own_process(given: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """The same, where libraries have as many threads."""
    words = [str(given.model), "--device", given.device, "--batches", given.batches]
    words += ["--turns", str(given.turns), "--threads", str(threads), "--part"]
    found: list[dict[str, Any]] = in_process(__file__, words, threads)
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure MiniLM's encoder beside torch.")
    parser.add_argument("model", type=Path, help="its folder")
    parser.add_argument("--device", default="host", help="host, cuda or cuda:N")
    parser.add_argument("--threads", default="1,2", help="of the host, several runs")
    parser.add_argument("--batches", help="sentences; by default 1,32, on a GPU 256, too")
    parser.add_argument("--turns", type=int, default=5, help="of each measurement; the best counts")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--note", help="what the record says of the machine besides")
    parser.add_argument("--json", type=Path, help="the folder of records")
    given = parser.parse_args(words)
    on_host = given.device == "host"
    given.batches = given.batches or BATCHES["host" if on_host else "cuda"]
    counts = [int(count) for count in given.threads.split(",")] if on_host else [1]
    if given.part:
        print(json.dumps(part_of(given, counts[0])))
        return 0
    entries = [entry for count in counts for entry in in_own_process(given, count)]
    print("\n".join(table(entries)))
    if given.json:
        write(given, words, entries)
    return 0


def write(given: argparse.Namespace, words: list[str], entries: list[dict[str, Any]]) -> None:
    """The record, in the folder of its machine."""
    index = int(given.device.partition(":")[2] or 0)
    machine = host_facts() if given.device == "host" else device_facts(index)
    record = {
        **begun(words, machine),
        "turns": given.turns,
        **({"note": given.note} if given.note else {}),
        "encoder": entries,
    }
    keep(given.json, "encoder", record)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
